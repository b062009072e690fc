"""The training of the paper's ranking experiments: SGD for 300 epochs, learning rate divided by 10 twice."""

from confrank.recipes.recipe import TrainingRecipe

PAPER = TrainingRecipe(
    source="Moon et al., Confidence-Aware Learning for Deep Neural Networks, ICML 2020",
    passes=1,
    expected="VGG-16, CIFAR-100, crl-softmax, 50,000 training images: AURC x10^3 71.83 ± 0.47",
    settings={},  # the defaults of `RunConfig`
)
