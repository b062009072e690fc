"""How long training takes, for the estimates of plans."""

from confrank.method_facts import facts_of

# Milliseconds per pass and run, four side by side on one NVIDIA H200 (benchmarks/training_h200_202611.md).
STEP_MS = {"vgg16": 1.14, "resnet110": 2.41, "densenet-bc": 3.95, "resnet18": 1.9}
# The same for networks that are compiled since they have dropout, for which there are no fused kernels.
COMPILED_MS = STEP_MS | {"resnet110": 4.34, "densenet-bc": 10.0}


def step_ms(model: str, method: str) -> float | None:
    """The time of a step, None if the network has not been measured.

    >>> step_ms("resnet110", "baseline") < step_ms("resnet110", "mcdropout")
    True
    """
    return (COMPILED_MS if facts_of(method).dropout else STEP_MS).get(model)
