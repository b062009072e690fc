"""Flat minima for failure prediction: SAM and SWA, with cross-entropy alone.

The schedule is that of the code published with SURE, whose tables the expected result is from. Its learning rate
reaches that of averaging over ten epochs, ours at once.
"""

from confrank.recipes.recipe import TrainingRecipe

FMFP = TrainingRecipe(
    source="Zhu et al., Rethinking Confidence Calibration for Failure Prediction, ECCV 2022",
    passes=2,
    expected="ResNet-18, 45,000 training images: AURC x10^3 3.56 on CIFAR-10, 55.0 on CIFAR-100",
    settings={
        "method": "baseline",
        "epochs": 200,
        "weight_decay": 5e-4,
        "schedule": "cosine",
        "averaging": "swa",
        "averaging_start": 0.6,
        "averaging_lr_share": 0.5,
        "sam": 0.05,
    },
    published={"cifar10": 0.00356, "cifar100": 0.0550},
)
