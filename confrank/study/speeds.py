"""How long training takes, for the estimates of plans."""

# Milliseconds per pass and run, four side by side on one NVIDIA H200 (benchmarks/training_h200_202611.md).
STEP_MS = {"vgg16": 1.18, "resnet110": 4.34, "densenet-bc": 10.0, "resnet18": 1.9}
