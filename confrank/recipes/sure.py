"""SURE: FMFP with RegMixup, CRL and a cosine head.

The published code stretches the correctness rates, and halves two weights for CIFAR-10. It passes clean and mixed
images through the network separately, and draws them anew for SAM's second pass; we pass them together, as RegMixup's
code does, and draw them once.
"""

from confrank.recipes.fmfp import FMFP
from confrank.recipes.recipe import TrainingRecipe

SURE = TrainingRecipe(
    source="Li et al., SURE: SUrvey REcipes for building reliable and robust deep networks, CVPR 2024",
    passes=4,
    expected="ResNet-18, 45,000 training images: AURC x10^3 2.97 on CIFAR-10, 45.8 on CIFAR-100",
    settings={
        **FMFP.settings,
        "method": "crl-softmax-stretched",
        "weight": 1.0,
        "mix": "mixup",
        "mix_weight": 1.0,
        "head": "cosine",
    },
    by_dataset={"cifar10": {"weight": 0.5, "mix_weight": 0.5}},
    published={"cifar10": 0.00297, "cifar100": 0.0458},
)
