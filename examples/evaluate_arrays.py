"""Evaluate the predictions of a scikit-learn model: no network, no files.

Expected output:

    acc         0.9...
    aurc        0.0...
    e_aurc      0.0...
    augrc       0.0...
    aupr_error  0...
    fpr95       0...
    auroc       0...
    ece         0...
    nll         0...
    brier       0...
"""

from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from confrank import evaluate


def main() -> None:
    image, label = load_digits(return_X_y=True)
    train_image, test_image, train_label, test_label = train_test_split(image, label, test_size=0.5, random_state=0)
    model = LogisticRegression(max_iter=2000).fit(train_image / 16, train_label)
    result = evaluate(probabilities=model.predict_proba(test_image / 16), label=test_label)
    for name, value in result.metrics.items():
        print(f"{name:<11} {value:.4f}")


if __name__ == "__main__":
    main()
