"""Compare two models on the same samples: is the difference larger than chance?

`compare` resamples both models together, so the interval is that of the paired difference.

Expected output:

    AURC: 20 trees 0.0..., 200 trees 0.0...
    difference -0.0..., 95% interval -0.0... to -0.0..., p = 0.00...
    rows matched: ...
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from confrank import compare


def main() -> None:
    image, label = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    order = random.permutation(len(label))
    image, label = image[order] / 16 + random.normal(0, 0.3, image.shape), label[order]
    models = [RandomForestClassifier(trees, random_state=0) for trees in (20, 200)]
    predictions = [
        {"probabilities": model.fit(image[:900], label[:900]).predict_proba(image[900:]), "label": label[900:]}
        for model in models
    ]
    result = compare(*predictions, resamples=1000)
    first, second = (metrics["aurc"] for metrics in result.metrics)
    difference = result.differences[0]["aurc"]
    print(f"AURC: 20 trees {first:.4f}, 200 trees {second:.4f}")
    low, high = difference.low, difference.high
    print(f"difference {difference.value:.4f}, 95% interval {low:.4f} to {high:.4f}, p = {difference.p:.4f}")
    print(f"rows matched: {result.pairings[0]}")


if __name__ == "__main__":
    main()
