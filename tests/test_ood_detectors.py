"""Detectors against scipy, numpy, scikit-learn and autograd by hand."""

import copy
import re
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.linalg import pinvh
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from confrank.confidence import max_probability
from confrank.models import create
from confrank.ood import LogitDetector, Mahalanobis, NearestNeighbours, Odin
from confrank.ood import neighbours as neighbours_module
from confrank.ood import odin as odin_module
from confrank.ood.features import as_vectors, block_layers, feature_of, features_of, repeatable
from confrank.ood.gaussian import Gaussians, Moments
from confrank.ood.mahalanobis import EPS, LayerWeights, layer_scores
from confrank.ood.neighbours import kth_distance
from confrank.ood.odin import odin_scores
from confrank.ood.tuning import fit_weights


class Tiny(nn.Module):
    """Anybody's network: not ours, with a layer that never runs."""

    def __init__(self, channels=3, classes=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, 6, 3), nn.BatchNorm2d(6), nn.Tanh())
        self.body = nn.Conv2d(6, 5, 3)
        self.head = nn.Linear(5, classes)
        self.unused = nn.Linear(2, 2)

    def forward(self, image):
        return self.head(torch.tanh(self.body(self.stem(image))).mean(dim=(2, 3)))


def samples(count=80, channels=3, classes=4, size=8):
    return torch.randn(count, channels, size, size), torch.arange(count) % classes


def fit_gaussians(features: torch.Tensor, label: torch.Tensor, num_classes: int) -> Gaussians:
    moments = Moments(num_classes)
    moments.add(features, label)
    return moments.gaussians()


def loader(images, labels, batch_size=16):
    return DataLoader(TensorDataset(images, labels), batch_size=batch_size)


@pytest.mark.parametrize("name", ["resnet110", "densenet-bc"])
def test_the_last_layer_is_taken_after_its_norm_and_relu(name):
    network = create(name, 4).eval()
    layers = block_layers(network)
    assert layers[:-1] == [f"blocks.{number}" for number in range(3)]
    image = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        _, features = features_of(network, image, layers)
        expected = network.features(image).penultimate
    assert torch.allclose(features[-1], expected, atol=1e-6)
    assert block_layers(create("vgg16", 4))[-1] == f"blocks.{len(create('vgg16', 4).blocks) - 1}"
    # One layer alone has the same features, and nothing behind it runs.
    ran = []
    for part in (*network.blocks, network.head):
        part.register_forward_hook(lambda module, *_: ran.append(module))
    with torch.no_grad():
        alone = [feature_of(network, image, layer) for layer in layers]
        assert all(torch.equal(one, other) for one, other in zip(alone, features, strict=True))
        assert network.head not in ran and [*map(ran.count, network.blocks)] == [4, 3, 2, 1]
        network(image)
    assert network.head in ran


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_equal_scipy_and_covariance_numpys_pooled_one(dtype):
    rng = np.random.default_rng(0)
    label = np.arange(600) % 7
    features = (rng.normal(size=(600, 12)) @ rng.normal(size=(12, 12)) + 3 * label[:, None] + 50).astype(
        np.float32 if dtype == torch.float32 else np.float64
    )
    moments = Moments(7)
    for start in range(0, 600, 128):
        moments.add(torch.from_numpy(features[start : start + 128]), torch.from_numpy(label[start : start + 128]))
    fitted = moments.gaussians()
    exact = features.astype(np.float64)
    means = np.stack([exact[label == k].mean(axis=0) for k in range(7)])
    pooled = sum(np.cov(exact[label == k].T, bias=True) * (label == k).sum() for k in range(7)) / 600
    assert np.allclose(fitted.mean.numpy(), means, rtol=1e-12)
    assert np.allclose(fitted.covariance.numpy(), pooled, rtol=1e-9, atol=1e-9)
    assert fitted.rank == 12
    queries = rng.normal(size=(50, 12)) * 9 + 50
    expected = cdist(queries, means, "mahalanobis", VI=np.linalg.inv(pooled)) ** 2
    assert np.allclose(fitted.distances(torch.from_numpy(queries)).numpy(), expected, rtol=1e-8)
    assert np.allclose(fitted.score(torch.from_numpy(queries)).numpy(), -expected.min(axis=1), rtol=1e-8)


def test_a_singular_covariance_gets_scipys_pseudo_inverse():
    rng = np.random.default_rng(1)
    few = rng.normal(size=(200, 3))
    features = np.concatenate([few, few @ rng.normal(size=(3, 2)), np.zeros((200, 1))], axis=1)
    label = np.arange(200) % 4
    fitted = fit_gaussians(torch.from_numpy(features), torch.from_numpy(label), 4)
    assert fitted.rank == 3
    inverse = pinvh(fitted.covariance.numpy())
    assert np.allclose((fitted.whitening @ fitted.whitening.T).numpy(), inverse, atol=1e-8)
    expected = cdist(features[:20], fitted.mean.numpy(), "mahalanobis", VI=inverse) ** 2
    assert np.allclose(fitted.distances(torch.from_numpy(features[:20])).numpy(), expected, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_only_rounding_counts_as_no_variance(dtype):
    torch.manual_seed(0)
    label = torch.arange(4000) % 10
    scales = torch.cat([torch.ones(1), torch.full((63,), 0.05)])
    whole = fit_gaussians((torch.randn(4000, 64) * scales + label[:, None] / 10).to(dtype), label, 10)
    assert whole.rank == 64
    some = torch.randn(4000, 3, dtype=torch.float64) + 5
    mixed = torch.cat([some, some @ torch.randn(3, 2, dtype=torch.float64), torch.zeros(4000, 1)], dim=1)
    assert fit_gaussians(mixed.to(dtype), label, 10).rank == 3
    with pytest.raises(ValueError, match="features that vary within a class"):
        fit_gaussians((3 * torch.rand(10, 5))[label].to(dtype), label, 10)


def test_small_variances_count_next_to_large_ones():
    rng = np.random.default_rng(2)
    features = (rng.normal(size=(3000, 40)) * np.logspace(0, -3, 40)).astype(np.float32)
    label = np.arange(3000) % 3
    fitted = fit_gaussians(torch.from_numpy(features), torch.from_numpy(label), 3)
    expected = cdist(features[:50], fitted.mean.numpy(), "mahalanobis", VI=np.linalg.inv(fitted.covariance)) ** 2
    assert np.allclose(fitted.distances(torch.from_numpy(features[:50])).numpy(), expected, rtol=1e-6)


def test_a_dead_unit_is_said():
    model = Tiny()
    with torch.no_grad():
        model.body.weight[2], model.body.bias[2] = 0, 0
    detector = Mahalanobis(model, ["stem", "body"]).fit(loader(*samples()))
    assert detector.notes == ["layer body: covariance of rank 4 of 5, pseudo-inverse used"]
    assert torch.isfinite(detector.score(samples()[0])).all()


def test_odins_step_equals_autograd_by_hand():
    model, std = Tiny().double().eval(), (0.5, 0.25, 0.125)
    images = samples(6)[0].double()
    temperature, eps = 10.0, 0.02
    moved = images.clone()
    for row in range(len(images)):
        image = images[row : row + 1].clone().requires_grad_()
        logits = model(image)[0]
        label = int(logits.argmax())
        log_probability = logits[label] / temperature - torch.logsumexp(logits / temperature, dim=0)
        log_probability.backward()
        for channel in range(3):
            moved[row, channel] += eps * image.grad[0, channel].sign() / std[channel]
    expected = (model(moved) / temperature).softmax(dim=1).max(dim=1).values
    found = Odin(model, temperature, eps, std).score(images)
    assert torch.allclose(found, expected, atol=1e-12)
    still = Odin(model, temperature, 0.0, std).score(images)
    assert (found > still).all()
    assert torch.equal(odin_scores(model, images, temperature, [0.0, eps], std), torch.stack([still, found]))


def test_odins_step_is_right_for_the_surest_images():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    with torch.no_grad():
        model[1].weight.mul_(20)
    images = torch.randn(200, 3, 2, 2)
    exact = odin_scores(copy.deepcopy(model).double(), images.double(), 1.0, [0.01], (1.0,))
    found = odin_scores(model, images, 1.0, [0.01], (1.0,))
    doubt = 1 - exact
    sure = (doubt > 1e-13) & (doubt < 1e-8)  # float32 would have no gradient on the winning logit
    assert sure.sum() > 10
    assert torch.allclose(1 - found[sure], doubt[sure], rtol=0.01)


def test_odin_without_step_and_temperature_is_the_maximum_probability():
    model, images = Tiny(), samples()[0]
    score = Odin(model, temperature=1.0, eps=0.0).score(images)
    with torch.no_grad():
        assert torch.equal(score, max_probability(model.eval()(images).double()))
    assert torch.equal(score, LogitDetector(model, "max-probability").score(images))


def test_mahalanobis_step_equals_autograd_by_hand():
    model, std, eps = Tiny().double().eval(), (0.5, 0.25, 0.125), 0.01
    images, labels = samples()
    images = images.double()
    detector = Mahalanobis(model, ["stem", "body"], eps=eps, std=std).fit(loader(images, labels))
    few = images[:5]
    for place, layer in enumerate(detector.layers):
        features = features_of(model, images, [layer])[1][0].detach().numpy()
        means = np.stack([features[labels.numpy() == k].mean(axis=0) for k in range(4)])
        inverse = torch.from_numpy(np.linalg.inv(np.cov((features - means[labels.numpy()]).T, bias=True)))

        def score(image, means=means, inverse=inverse, layer=layer):
            gaps = features_of(model, image, [layer])[1][0][:, None] - torch.from_numpy(means)
            return -torch.einsum("nkd,de,nke->nk", gaps, inverse, gaps).amin(dim=1)

        leaf = few.clone().requires_grad_()
        score(leaf).sum().backward()
        moved = few + eps * leaf.grad.sign() / torch.tensor(std).double()[None, :, None, None]
        found = detector.layer_scores(few, [0.0, eps])[:, :, place]
        assert torch.allclose(found[0], score(few).detach(), rtol=1e-7)
        assert torch.allclose(found[1], score(moved).detach(), rtol=1e-7)
        assert (found[1] > found[0]).all()
    detector.weights = LayerWeights((2.0, -1.0), 0.5)
    parts = detector.layer_scores(few, [eps])[0]
    assert torch.allclose(detector.score(few), 2 * parts[:, 0] - parts[:, 1] + 0.5)


def test_one_pass_for_all_step_sizes_equals_each_alone():
    model = create("small", 3, in_channels=1, dropout=True)
    images, labels = samples(60, 1, 3)
    detector = Mahalanobis(model).fit(loader(images, labels))
    assert detector.layers == ["blocks.0", "blocks.1"]
    together = detector.layer_scores(images[:9], EPS)
    for place, eps in enumerate(EPS):
        alone = torch.cat([detector.layer_scores(part, [eps])[0] for part in images[:9].split(4)])
        assert torch.allclose(together[place], alone, rtol=1e-4)


def test_blocks_are_what_the_network_calls_features():
    model = create("small", 3, in_channels=1).eval()
    images = samples(6, 1, 3)[0]
    logits, (*blocks, neck) = features_of(model, images, ["blocks.0", "blocks.1", "neck"])
    own = model.features(images)
    assert torch.equal(logits, model(images))
    assert torch.equal(neck, own.penultimate)
    assert all(torch.equal(one, other) for one, other in zip(blocks, own.blocks, strict=True))


@pytest.mark.parametrize("k", [1, 7, 300])
def test_neighbours_equal_scikit_learn(monkeypatch, k):
    monkeypatch.setattr(neighbours_module, "QUERIES", 64)
    monkeypatch.setattr(neighbours_module, "STORED", 128)
    rng = np.random.default_rng(0)
    stored, queries = (rng.normal(size=(n, 9)).astype(np.float32) for n in (300, 150))
    queries[3] = stored[5]
    expected = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(stored).kneighbors(queries)[0][:, -1]
    found = kth_distance(torch.from_numpy(queries), torch.from_numpy(stored), k)
    assert np.allclose(found.numpy(), expected, atol=1e-5)
    assert k > 1 or found[3] == 0


def test_neighbour_scores_of_a_network():
    model = Tiny()
    images, labels = samples()
    detector = NearestNeighbours(model, "body", k=5).fit(loader(images, labels))
    other = torch.randn(20, 3, 8, 8)
    unit = []
    for part in (images, other):
        features = features_of(model.eval(), part, ["body"])[1][0].detach().double().numpy()
        unit.append(features / np.linalg.norm(features, axis=1, keepdims=True))
    expected = -np.sort(cdist(unit[1], unit[0]), axis=1)[:, 4]
    assert np.allclose(detector.score(other).numpy(), expected, atol=1e-5)


def test_cheap_scores_by_their_formulas():
    model = Tiny().eval()
    images = samples(10)[0]
    logits = model(images).detach().double().numpy()
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    expected = {
        "max-logit": logits.max(axis=1),
        "energy": np.log(np.exp(logits).sum(axis=1)),
        "negative-entropy": 1 + (p * np.log(p)).sum(axis=1) / np.log(4),
        "max-probability": p.max(axis=1),
    }
    for name, values in expected.items():
        assert np.allclose(LogitDetector(model, name).score(images).numpy(), values, atol=1e-9)


def test_layer_weights_equal_scikit_learns_decision():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(-20, 5, (90, 3)), rng.normal(-30, 9, (70, 3))
    inside[:, 2] = outside[:, 2] = -1
    both, label = np.concatenate([inside, outside]), np.repeat([1, 0], [90, 70])
    spread = np.where(both.std(axis=0) > 0, both.std(axis=0), 1)
    scaled = (both - both.mean(axis=0)) / spread
    expected = LogisticRegression(max_iter=1000).fit(scaled, label).decision_function(scaled)
    weights = fit_weights(inside, outside)
    assert np.allclose(weights.combined(torch.from_numpy(both)).numpy(), expected, atol=1e-9)
    assert expected[:90].mean() > expected[90:].mean()


def test_detectors_leave_the_network_as_it_was():
    model = Tiny().train()
    model.stem[1].eval()
    before = {name: values.clone() for name, values in model.state_dict().items()}
    images, labels = samples()
    for detector in (Odin(model), Mahalanobis(model, ["stem"], eps=0.01), NearestNeighbours(model, "body", k=3)):
        detector.fit(loader(images, labels))
        first, again = detector.score(images[:6]), torch.cat([detector.score(image[None]) for image in images[:6]])
        assert torch.allclose(first, again, rtol=1e-4)
        assert not first.requires_grad
    assert (model.training, model.stem[1].training, model.head.training) == (True, False, True)
    assert all(torch.equal(values, before[name]) for name, values in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.body._forward_hooks


def test_wrong_use_is_named():
    model = Tiny()
    images, labels = samples()
    with pytest.raises(ValueError, match="a layer of Tiny, but got 'bodi'; did you mean body"):
        Mahalanobis(model, ["bodi"])
    with pytest.raises(
        ValueError, match="names of layers to look at in Tiny, but got none; .* e.g. stem, body, head"
    ):
        NearestNeighbours(model)
    with pytest.raises(ValueError, match="layer 'unused' to run in a forward pass"):
        Mahalanobis(model, ["unused"]).fit(loader(images, labels))
    with pytest.raises(ValueError, match="layer 'stem': expected training samples of every class, .* of class 2"):
        Mahalanobis(model, ["stem"]).fit(loader(images[labels != 2], labels[labels != 2]))
    with pytest.raises(ValueError, match="fit was not called"):
        Mahalanobis(model, ["stem"]).score(images)
    with pytest.raises(
        ValueError, match=r"images that the network accepts, but got shape \[80, 1, 8, 8\]: .*channels"
    ):
        LogitDetector(model).score(images[:, :1])
    with pytest.raises(ValueError, match=r"positive std for each channel .* but got \(0.5, 0.5\)"):
        Odin(model, std=(0.5, 0.5)).score(images)
    with pytest.raises(ValueError, match=r"positive std for each channel .* but got \(0.5, 0.0, 0.5\)"):
        Odin(model, std=(0.5, 0.0, 0.5)).score(images)
    pixels, fitted = (255 * images).byte(), Mahalanobis(model, ["stem"], eps=0.1).fit(loader(images, labels))
    for detector in (Odin(model), Odin(model, std=(0.2, 0.2, 0.2)), fitted):
        with pytest.raises(ValueError, match="in floating point, but got torch.uint8; convert and normalise"):
            detector.score(pixels)
    with pytest.raises(ValueError, match="expected a score among max-probability"):
        LogitDetector(model, "entropy")
    with pytest.raises(ValueError, match="the loader is empty"):
        Mahalanobis(model, ["stem"]).fit([])
    with pytest.raises(ValueError, match="expected eps of 0 or more, but got -1.0"):
        Mahalanobis(model, ["stem"], eps=-1.0)
    broken = Tiny()
    with torch.no_grad():
        broken.body.bias[0] = float("nan")
    with pytest.raises(ValueError, match="layer 'body': expected finite features, but got NaN or infinity"):
        Mahalanobis(broken, ["stem", "body"]).fit(loader(images, labels))
    constant = torch.zeros(8, 3, 8, 8)
    with pytest.raises(ValueError, match="layer 'stem': expected features that vary within a class"):
        Mahalanobis(model, ["stem"]).fit(loader(constant, labels[:8]))


def test_a_network_that_fails_without_a_word_is_reported():
    class Silent(nn.Module):
        def forward(self, images):
            raise RuntimeError

    with pytest.raises(ValueError, match=r"images that the network accepts, but got shape \[2, 3\]: RuntimeError"):
        LogitDetector(Silent(), "energy").score(torch.zeros(2, 3))


def test_memory_of_a_fit_does_not_grow_with_the_samples():
    moments = Moments(3)
    for _ in range(5):
        moments.add(torch.randn(40, 6), torch.arange(40) % 3)
    kept = [value for value in vars(moments).values() if isinstance(value, torch.Tensor)]
    assert sum(value.numel() for value in kept) == 3 + 3 * 6 + 6 * 6 + 6
    assert layer_scores(Tiny(), {"stem": moments.gaussians()}, samples(7)[0], [0.0], (1.0,)).shape == (1, 7, 1)


def test_the_how_to_measures_what_scikit_learn_measures():
    text = (Path(__file__).parents[1] / "docs" / "how-to" / "ood.md").read_text()
    names = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), names)
    scores = [names["detector"].score(names[side]) for side in ("known", "unknown")]
    assert torch.equal(scores[0], names["score"])
    expected = roc_auc_score(np.repeat([1, 0], list(map(len, scores))), torch.cat(scores).numpy())
    assert names["result"].metrics["auroc"] == pytest.approx(expected) and expected > 0.9


def every_detector(model, layer):
    yield LogitDetector(model)
    yield Odin(model, eps=0.01)
    yield Mahalanobis(model, [layer])
    yield Mahalanobis(model, [layer], eps=0.01)
    yield NearestNeighbours(model, layer, k=3)


def test_what_users_pass_is_taken():
    model, (images, labels) = Tiny(channels=1), samples(channels=1)
    batches = [(images[:40].numpy(), labels[:40].numpy()), (images[40:], labels[40:].tolist())]
    plain, loose = Mahalanobis(model, ["body"], 0.01, (0.3,)), Mahalanobis(model, "body", 0.01, 0.3)
    plain.fit(loader(images, labels, batch_size=40))
    assert torch.equal(loose.fit(batches).score(images), plain.score(images))
    with pytest.raises(ValueError, match="batches of .* as tensors, but got str, list"):
        loose.fit([("picture.png", [1])])


def test_a_network_that_overwrites_its_input_and_inference_mode():
    model, (images, labels) = nn.Sequential(OrderedDict(first=nn.ReLU(inplace=True), net=Tiny())), samples()
    before = images.clone()
    for detector in every_detector(model, "net.body"):
        detector.fit(loader(images, labels))
        expected = detector.score(images[:9])
        with torch.inference_mode():
            made = images[:9].clone()
            assert torch.allclose(detector.score(made), expected)
        assert torch.allclose(detector.score(made), expected)
        assert torch.equal(images, before)
        with torch.inference_mode():
            detector.fit(loader(images.clone(), labels.clone()))
        assert torch.allclose(detector.score(images[:9]), expected)


def test_no_images_get_no_scores():
    images, labels = samples()
    for detector in every_detector(Tiny(), "body"):
        none = detector.fit(loader(images, labels)).score(images[:0])
        assert none.shape == (0,) and none.dtype == torch.float64


def test_networks_in_half_precision():
    images, labels = samples()
    whole, half = Tiny(), Tiny().bfloat16()
    half.load_state_dict(whole.state_dict())
    images[0] = 0
    for exact, rounded in zip(every_detector(whole, "body"), every_detector(half, "body"), strict=True):
        pair = [one.fit(loader(images, labels)).score(images) for one in (exact, rounded)]
        assert pair[1].dtype == torch.float64 and torch.isfinite(pair[1]).all()
        assert np.corrcoef(*pair)[0, 1] > 0.9
    nothing = NearestNeighbours(nn.Sequential(nn.Flatten(), nn.Identity()).half(), "1", k=2)
    assert torch.isfinite(nothing.fit(loader(torch.zeros(9, 1, 2, 2).half(), labels[:9])).stored).all()


@pytest.mark.parametrize("layers", [(nn.Flatten(), nn.Linear(192, 5)), (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))])
def test_features_are_taken_before_anything_overwrites_them(layers):
    head = nn.Linear(5 if isinstance(layers[0], nn.Flatten) else 4 * 36, 2)
    model, images = nn.Sequential(*layers, nn.ReLU(inplace=True), nn.Flatten(), head).eval(), torch.randn(5, 3, 8, 8)
    with torch.no_grad():
        expected = as_vectors(model[:2](images), "1")
        _, (got,) = features_of(model, images, ["1"])
    assert torch.equal(got, expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_scores_on_a_gpu_equal_those_on_the_processor():
    images, labels = samples()
    here, there = Tiny(), Tiny().cuda()
    there.load_state_dict(here.state_dict())
    for one, other in zip(every_detector(here, "body"), every_detector(there, "body"), strict=True):
        expected, found = (detector.fit(loader(images, labels)).score(images) for detector in (one, other))
        assert found.device.type == "cuda"
        # A pixel whose gradient is 0 but for rounding may step the other way.
        assert torch.allclose(found.cpu(), expected, rtol=1e-3, atol=1e-4)


def test_the_grids_are_the_papers():
    assert odin_module.TEMPERATURES == (1, 10, 100, 1000)
    assert odin_module.EPS == (0, 0.0005, 0.001, 0.0014, 0.002, 0.0024, 0.005, 0.01, 0.05, 0.1, 0.2)
    assert EPS == (0, 0.0005, 0.001, 0.0014, 0.002, 0.005, 0.01)


@pytest.mark.parametrize(
    ("temperature", "eps"), [(0, 0.001), (-1, 0.001), (1, -0.001), (float("nan"), 0), (1, float("nan"))]
)
def test_odin_refuses_settings_without_meaning(temperature, eps):
    with pytest.raises(ValueError, match=f"temperature and eps of 0 or more, but got {temperature} and {eps}"):
        Odin(Tiny(), temperature, eps)
    assert Odin(Tiny(), 1e-3, 0).eps == 0


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (0, 4), (-1, 4)])
def test_labels_outside_of_the_classes_are_refused(first, last):
    images, labels = samples(8)
    labels[0], labels[-1] = first, last
    with pytest.raises(ValueError, match=f"expected labels within 0..3, but got {first} to {last}"):
        Mahalanobis(Tiny(), ["stem"]).fit([(images, labels)])


def test_a_batch_without_samples_changes_nothing():
    images, labels = samples()
    fitted = Mahalanobis(Tiny(), ["stem"])
    expected = fitted.fit([(images, labels)]).score(images)
    assert torch.equal(fitted.fit([(images, labels), (images[:0], labels[:0])]).score(images), expected)


def test_variance_below_the_rounding_of_sums_counts_as_none():
    """The limit is (d + 4 root n) eps, or 4 eps^2 of the features' own type, times the largest mean square."""
    features = 3 + torch.randn(400, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    largest = (features.numpy() ** 2).mean(axis=0).max()
    for dtype, share in ((torch.float64, (5 + 4 * 400**0.5) * 2.0**-52), (torch.float16, 4 * 2.0**-20)):
        moments = Moments(2)
        moments.add(features.to(dtype), torch.arange(400) % 2)
        assert moments._rounding().item() == pytest.approx(largest * share, rel=2e-3)


def test_neighbours_refuse_what_they_cannot_use():
    model = Tiny()
    images, labels = samples(8)
    with pytest.raises(ValueError, match="batches of training samples to fit on, but the loader is empty"):
        NearestNeighbours(model, "body").fit([])
    for k in (0, 9):
        with pytest.raises(ValueError, match=rf"k within 1..8 \(the training samples\), but got {k}"):
            NearestNeighbours(model, "body", k=k).fit(loader(images, labels))
    for k in (1, 8):
        fitted = NearestNeighbours(model, "body", k=k).fit(loader(images, labels))
        every = cdist(fitted.stored.numpy(), fitted.stored.numpy())
        assert fitted.score(images).numpy() == pytest.approx(-np.sort(every, axis=1)[:, k - 1], abs=1e-3)


def test_scores_are_computed_deterministically_and_the_switch_is_restored():
    model, cudnn = Tiny(), torch.backends.cudnn
    before = cudnn.deterministic
    with repeatable(model):
        assert cudnn.deterministic and not cudnn.benchmark and not model.training
    assert cudnn.deterministic == before and model.training
