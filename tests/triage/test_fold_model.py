"""One model of a fit against a slow twin that is written from its description."""

import math

import numpy as np
import pytest
import torch

from protofission.core.center_mixture import fit_centers, start_centers
from protofission.core.rng import step_rng
from protofission.models.adapters import AdapterSpec
from protofission.models.heads import HeadSpec
from protofission.triage.fold_model import FoldModelSizes, spread_logits
from protofission.triage.fold_models import FoldData, _train
from protofission.triage.fold_training import FoldTraining, estimate_share, set_share, train_fold


def sizes_of(strange=4, **others):
    given = {
        "inputs": 9,
        "reduced": 7,
        "near": 5,
        "width": 6,
        "known": 3,
        "strange": strange,
        "head": HeadSpec("fission", prototypes=2),
        "adapter": AdapterSpec("linear", width=4),
        "free": strange,
        "points": strange // 2,
    }
    return FoldModelSizes(**{**given, **others})


def model_of(sizes, seed=0):
    """A model all of whose numbers are random."""
    model, generator = sizes.build().double(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            positive = name in ("scale", "score_scales", "logit_scales") or "deviation" in name
            tensor.copy_(noise.abs() + 0.5 if positive else noise)
    return model


def features(count=25, inputs=9, seed=1):
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(seed)).double()


def unit(vector):
    return vector / math.sqrt(sum(v * v for v in vector))


def spread(logits):
    logs = [v - math.log(sum(math.exp(w) for w in logits)) for v in logits]
    return np.array([v - sum(logs) / len(logs) for v in logs])


def twin(model, row, without=None):
    """The logits and the score of one image, without a class if one is given."""
    part = {name: value.numpy() for name, value in model.named_buffers()}
    known = model.sizes.known
    others = [name for name in range(known) if name != without]
    standard = (row - part["mean"]) * part["scale"]
    reduced = part["axes"] @ unit(standard) - part["center"]
    whitened = unit(part["whitening"] @ reduced - part["offset"])
    fission = model.model(torch.from_numpy(whitened[None])).logits[0].numpy()
    margin = max(fission[others])
    if model.sizes.strange:
        margin -= max(fission[known:])
    near = reduced[: model.sizes.near]
    distances = np.array(
        [sum((near @ part["class_root"] - point) ** 2) for point in part["class_points"]]
    )
    to_background = sum((near @ part["background_root"] - part["background_point"][0]) ** 2)
    longest = 1.5 * math.sqrt(len(row))
    pulled = standard * min(1, longest / math.sqrt(sum(v * v for v in standard)))
    linear = part["regression"] @ pulled + part["intercepts"]
    energy = math.log(sum(math.exp(v) for v in linear[others]))
    scores = [margin, to_background - min(distances[others]), energy]
    by_distance = -distances / 2 / math.sqrt(model.sizes.near)
    logits = [fission[:known], linear, by_distance]
    if model.sizes.free:
        odds = [math.exp(v) for v in part["centers"] @ whitened + part["center_offsets"]]
        scores.append(math.log(sum(odds[name] for name in others) / sum(odds[known:])))
        logits.append(np.log(odds[:known]))
    if model.sizes.points:
        points = part["points"].reshape(known, model.sizes.points, -1)[others]
        scores.append(
            max(point @ (part["axes"] @ unit(standard)) for each in points for point in each)
        )
    logits = [spread(each) for each in logits]
    score = sum((np.array(scores) - part["score_centers"]) / part["score_scales"])
    return sum(map(np.divide, logits, part["logit_scales"])), score


@pytest.mark.parametrize("strange", [0, 4])
@torch.no_grad()
def test_logits_and_scores_are_those_of_the_twin(strange):
    model = model_of(sizes_of(strange), seed=2)
    found = model(features())
    for row, logits, score in zip(features().numpy(), *found, strict=True):
        wanted = twin(model, row)
        assert logits.numpy() == pytest.approx(wanted[0], rel=1e-9, abs=1e-9)
        assert float(score) == pytest.approx(wanted[1], rel=1e-9, abs=1e-9)
        own = [twin(model, row, name)[1] for name in range(3)]
        rows = torch.from_numpy(row).repeat(3, 1)
        assert model.standard_scores(rows, torch.arange(3)).sum(1).numpy() == pytest.approx(own)
    assert len(set(found.logits.argmax(1).tolist())) > 1
    single = model.float()(features().float())
    assert torch.allclose(single.logits.double(), found.logits, rtol=1e-3, atol=1e-3)
    assert torch.allclose(single.scores.double(), found.scores, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("adapter", ["none", "linear", "rectified", "mlp"])
@pytest.mark.parametrize("head", ["fission", "cosine", "linear"])
def test_shapes_are_those_of_the_tensors(adapter, head):
    spec = AdapterSpec(adapter, width=4, hidden=5)
    sizes = sizes_of(head=HeadSpec(head, prototypes=2), adapter=spec, free=2)
    built = {name: tuple(value.shape) for name, value in sizes.build().state_dict().items()}
    assert sizes.shapes() == built
    assert spec.outputs(6) == (6 if adapter == "none" else 4)


def test_spread_logits_do_not_change_with_what_is_added_to_all():
    logits = torch.randn(5, 4, dtype=torch.float64)
    found = spread_logits(logits)
    assert torch.allclose(found, logits - logits.mean(1, keepdim=True))
    assert torch.allclose(found, spread_logits(logits + 7))


def drawn(known=3, count=20, width=12, seed=0, pool=60):
    """Classes around the first axes; a third of the pool around another."""
    random, labels = np.random.default_rng(seed), np.arange(known * count) % known
    strange = np.append(np.arange(2 * pool // 3) % known, np.full(pool - 2 * pool // 3, known))
    noise = [random.normal(size=(len(each), width)) for each in (labels, strange)]
    axes = 4 * np.eye(width)
    found = [axes[each] + own for each, own in zip((labels, strange), noise, strict=True)]
    return found[0].astype(np.float32), labels, found[1].astype(np.float32)


SETTINGS = FoldTraining(prototypes=2, width=6, steps=5, seed=0)


@pytest.mark.parametrize("known", [2, 3])
def test_a_trained_model_holds_what_was_fitted_to_labels_and_pool(known):
    """Each part by a library or by numpy: regression, Mahalanobis distances, standardization."""

    from protofission.core.distance_scores import fit_background, fit_gaussians, mahalanobis

    rows, labels, pool = drawn(known)
    model = train_fold(SETTINGS, rows, labels, pool).double()
    assert (model.sizes.known, model.sizes.strange) == (known, 2 * known)
    both = np.concatenate([rows, pool]).astype(float)
    standard = (both - both.mean(0)) / both.std(0)
    found, near, units = model.spaces(torch.from_numpy(both))  # all directions are near
    assert found.numpy() == pytest.approx(standard, abs=1e-5)
    assert near.mean(0).abs().max() < 1e-6
    assert torch.allclose(units.norm(dim=1), torch.ones(len(both)).double(), atol=1e-6)

    scores, logits = model.parts(torch.from_numpy(both))
    own = near[: len(labels)]
    classes = fit_gaussians(own, torch.from_numpy(labels), known, 0.5)
    wanted = mahalanobis(near, fit_background(near[len(labels) :]))[:, 0]
    wanted = wanted - mahalanobis(near, classes).amin(1)
    assert torch.allclose(scores[:, 1], wanted, rtol=1e-3, atol=1e-3)

    share = first_share(near, labels)
    by_pool = scores[len(labels) :]
    assert torch.allclose(model.score_centers, by_pool.mean(0), rtol=1e-3, atol=1e-4)
    weights = by_pool.std(0, correction=0) / model.score_scales
    assert weights.tolist() == pytest.approx([1, share, (1 - share) ** 2, 1, 1e-3], rel=1e-3)

    linear = found @ model.regression.T + model.intercepts  # no row is far away
    known_by = taught_regression(model, standard, near, scores, logits, labels)
    probs = linear.softmax(1).numpy()
    assert probs == pytest.approx(known_by.predict_proba(standard @ model.axes.T.numpy()), abs=1e-3)
    assert torch.allclose(logits[:, 1], spread_logits(linear), atol=1e-5)
    spreads = logits[len(labels) :].unbind(1)
    weights = (1 + 2 * (1 - share), 1 + 6 * (1 - share), 1, 8 * (1 - share) ** 2)
    scales = [float(each.std()) / weight for each, weight in zip(spreads, weights, strict=True)]
    assert model.logit_scales.tolist() == pytest.approx(scales, rel=1e-3)


def first_share(near, labels):
    """The share of strangers that a model estimates by itself."""
    count = len(labels)
    return estimate_share(near[:count].float(), torch.from_numpy(labels), near[count:].float())


def taught_regression(model, standard, near, scores, logits, labels):
    """A regression of labels, then one of labels and of the pool images that score highest."""
    from sklearn.linear_model import LogisticRegression

    count = len(labels)
    first = LogisticRegression(max_iter=100, tol=1e-3).fit(standard[:count], labels)
    own = first.decision_function(standard[count:])
    own = np.stack([-own / 2, own / 2], 1) if own.ndim == 1 else own
    energy, guessed = np.log(np.exp(own).sum(1)), spread_logits(torch.from_numpy(own)).numpy()
    share = first_share(near, labels)
    parts = np.column_stack([scores[count:, :2].numpy(), energy, scores[count:, 3].numpy()])
    ranked = (parts - parts.mean(0)) / parts.std(0) @ [1, share, (1 - share) ** 2, 1]
    by_fission, by_distance, by_centers = (logits[count:, place].numpy() for place in (0, 2, 3))
    summed = 3 * by_fission / by_fission.std() + guessed / guessed.std()
    summed = summed + by_distance / by_distance.std() + 3 * by_centers / by_centers.std()
    classes = summed.argmax(1)
    sure = np.argsort(-ranked)[: round(0.7 * (1 - share) * len(ranked))]
    assert 0 < len(sure) < len(ranked)
    rows = standard @ model.axes.T.numpy()
    weights = np.repeat([1.0, 0.3], [count, len(sure)])
    rows = np.concatenate([rows[:count], rows[count:][sure]])
    taught = LogisticRegression(C=0.01, max_iter=100, tol=1e-3)
    return taught.fit(rows, np.concatenate([labels, classes[sure]]), sample_weight=weights)


def given_share(share):
    """Parts of a model that was told the share of strangers, and its output for the pool."""
    rows, labels, pool = drawn()
    model = train_fold(SETTINGS, rows, labels, pool).double()
    set_share(model.float(), rows, labels, pool, share, 0)
    found = torch.from_numpy(pool).double()
    return model, model.double().parts(found), model(found), (rows, labels, pool)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_scores_are_joined_by_the_share_of_strangers(share):
    """Fission's, share times distances, (1 - share)^2 times energy, and the mixture's.

    Points count where somebody says so (`nearest_points`).
    """
    _, (scores, _), found, _ = given_share(share)
    standard = (scores - scores.mean(0)) / scores.std(0, correction=0)
    wanted = standard @ torch.tensor([1, share, (1 - share) ** 2, 1, 0]).double()
    assert (found.scores - wanted).abs().max() < 0.02  # no weight is 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9, 1.0])
def test_logits_are_joined_by_the_share_of_known_images(share):
    """With k the known share: 1 + 2 k times fission's, 1 + 6 k times the regression's, those of
    distances, and 8 k^2 times the mixture's."""
    _, (_, logits), found, _ = given_share(share)
    parts = logits / logits.transpose(0, 1).flatten(1).std(1)[:, None]
    weights = torch.tensor([3 - 2 * share, 7 - 6 * share, 1, 8 * (1 - share) ** 2]).double()
    wanted = torch.einsum("p,nps->ns", weights, parts)
    assert torch.allclose(found.logits, wanted, rtol=1e-3, atol=5e-3)


@pytest.mark.parametrize("share", [None, 0.9])
def test_centers_are_those_of_the_mixture(share):
    """In the model's space, by the share that it estimates itself, or is told."""
    rows, labels, pool = drawn()
    model = train_fold(SETTINGS, rows, labels, pool)
    near = model.spaces(torch.from_numpy(np.concatenate([rows, pool])))[1]
    before = model.centers.clone()
    if share is not None:
        set_share(model, rows, labels, pool, share, 0)
        assert (before - model.centers).abs().max() > 0.1
    units = [model.spaces(torch.from_numpy(each))[2].double() for each in (rows, pool)]
    classes, generator = torch.from_numpy(labels), step_rng(0, 0, "free centers")
    starts = start_centers(units[0], classes, units[1], 6, generator)
    by = first_share(near, labels) if share is None else share
    wanted = fit_centers(starts, units[0], classes, units[1], by)
    assert torch.allclose(model.centers.double(), 10 * wanted.centers, atol=1e-4)
    assert torch.allclose(model.center_offsets.double(), wanted.log_priors, atol=1e-5)


@pytest.mark.parametrize("count", [3, 20])
def test_points_are_a_class_own_labels_or_centers_of_them(count):
    """In the principal directions, without the mean subtracted; three labels fill five points."""
    rows, labels, pool = drawn(count=count)
    model = train_fold(SETTINGS, rows, labels, pool)
    units = (model.spaces(torch.from_numpy(rows))[1] + model.center).double().numpy()
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    points = model.points.double().numpy().reshape(3, 5, -1)
    for name, own in enumerate(points):
        cosines = own @ units[labels == name].T
        if count == 3:
            assert cosines.max(0) == pytest.approx([1, 1, 1], abs=1e-5)
            assert cosines.max(1) == pytest.approx([1] * 5, abs=1e-5)
            continue
        nearest = cosines.argmax(0)
        assert set(nearest) == set(range(5))
        for place, point in enumerate(own):
            mean = units[labels == name][nearest == place].sum(0)
            assert point == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


def test_a_pool_that_lies_on_the_known_centers_is_judged():
    rows, labels, _ = drawn()
    clean = np.stack([rows[labels == c].mean(0) for c in range(3)])[labels]
    model = train_fold(SETTINGS, clean, labels, clean.copy())
    set_share(model, clean, labels, clean, 0.3, 0)
    found = model(torch.from_numpy(clean))
    assert found.scores.isfinite().all()
    assert (found.logits.argmax(1) == torch.from_numpy(labels)).all()


def test_a_control_has_no_heads_for_strangers_and_the_labels_as_background():
    rows, labels, pool = drawn()
    model = train_fold(SETTINGS, rows, labels, None)
    assert model.sizes.strange == model.sizes.free == model.sizes.points == 0
    assert model.mean.numpy() == pytest.approx(rows.mean(0), abs=1e-5)
    assert float(model(torch.from_numpy(rows)).scores.mean()) == pytest.approx(0, abs=1e-3)
    data = FoldData(rows, labels, np.full(len(rows), -1), pool, np.full(len(pool), -1))
    from protofission.triage.fold_models import _Task

    same = _train(data, SETTINGS, _Task(0, False))
    for name, value in model.state_dict().items():
        assert torch.allclose(value, same.state_dict()[name], atol=1e-5), name
