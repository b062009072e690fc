"""Every ingredient of a training at once, for tests of restarts and of several processes."""

INGREDIENTS = {
    "schedule": "cosine",
    "averaging": "swa",
    "averaging_lr": 0.02,
    "sam": 0.05,
    "mix": "both",
    "soft_labels": 0.8,
    "augment": "trivial",
    "head": "cosine",
    "mirror": True,
}
