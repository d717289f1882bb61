"""The models of all folds as one: ranks, decisions, sub-classes, clusters, each row by itself."""

import json

import numpy as np
import pytest
import torch

from protofission.core.cross_conformal import FoldScores, cross_guarantee
from protofission.core.records import NO_CLASS
from protofission.core.unit_maps import UnitMap
from protofission.models.adapters import AdapterSpec
from protofission.models.encoders.own_backbone import OwnBackbone
from protofission.models.heads import HeadSpec
from protofission.triage.bundle import Bundle
from protofission.triage.bundle_files import MANIFEST, seal_manifest
from protofission.triage.calibrated_model import ACCEPT, NOVEL, REJECT
from protofission.triage.fold_ensemble import MOST_STACKED, OUTSIDE, FoldEnsemble, UnitCenters
from protofission.triage.fold_model import FoldModelSizes
from protofission.triage.independent_rows import compute_rows, row_by_row

INPUTS, KNOWN, MODELS, LABELS = 9, 3, 4, 39
COUNTS = (2, 1, 4)
HEAD, ADAPTER = HeadSpec("fission", prototypes=2), AdapterSpec(width=4)


def random_model(seed, head=HEAD, adapter=ADAPTER, reduced=7, free=2, points=3):
    sizes = FoldModelSizes(INPUTS, reduced, 5, 6, KNOWN, 4, head, adapter, free, points)
    model, generator = sizes.build(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            noise = torch.randn(tensor.shape, generator=generator)
            positive = "scale" in name or "deviation" in name
            tensor.copy_(noise.abs() + 0.5 if positive else noise)
    return model


def centers_of(counts, seed):
    random = np.random.default_rng(seed)
    space = UnitMap(
        random.normal(size=INPUTS),
        random.random(INPUTS) + 0.5,
        random.normal(size=(INPUTS, 4)),
        random.normal(size=4),
    )
    drawn = [random.normal(size=(count, 4)) for count in counts]
    units = [own / np.linalg.norm(own, axis=1, keepdims=True) for own in drawn]
    return UnitCenters.of(space, [torch.from_numpy(own) for own in units]), space, units


def ensemble_of(clusters=3, keep=0.5, *, says_novel=False, free=2, points=3):
    """An ensemble of random models, the scores that it ranks among, and its guarantee."""
    models = [random_model(seed, free=free, points=points) for seed in range(MODELS)]
    folds = np.random.default_rng(0).permutation(np.arange(LABELS) % MODELS)
    with torch.no_grad():
        by_model = np.stack([model(rows(200)).scores.numpy() for model in models], 1)
    scores = by_model[np.arange(LABELS), folds].astype(float)
    middle = np.median(by_model, 0).astype(float)
    ranked = FoldScores(scores, folds, middle, np.abs(by_model - middle).mean(0).astype(float))
    found = FoldEnsemble(
        models,
        np.bincount(folds).tolist(),
        centers_of(COUNTS, 1)[0],
        centers_of((clusters,), 2)[0],
        says_novel=says_novel,
    )
    found.rank_among(ranked)
    promised = cross_guarantee(folds, keep)
    found.threshold.fill_(promised.threshold)
    return found, ranked, promised


def rows(count, seed=3):
    return torch.randn(count, INPUTS, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def test_id_scores_are_those_of_core_and_the_rank_alone_accepts():
    found, ranked, promised = ensemble_of()
    scores, verdicts = found.by_model(rows(300, 5))[1], found(rows(300, 5))
    assert verdicts.id_scores.numpy() == pytest.approx(ranked.id_scores(scores), abs=1e-6)
    ranks = ranked.ranks(scores.numpy().astype(float))
    assert promised.rank == 20
    assert np.array_equal(verdicts.decisions.numpy() == ACCEPT, ranks >= promised.rank)
    assert 20 < (ranks >= promised.rank).sum() < 280
    # ties with labels count as reached, in either precision
    on_labels = torch.from_numpy(np.repeat(ranked.scores[:, None], MODELS, 1))
    for kind, exact in ((torch.float32, 1e-6), (torch.float64, 1e-7)):
        ids = found.to(kind).id_scores(on_labels.to(kind)).numpy()
        assert ids == pytest.approx(ranked.id_scores(on_labels), abs=exact)


@torch.no_grad()
def test_logits_are_means_and_the_temperature_divides_them():
    found = ensemble_of()[0]
    logits = torch.stack([model(rows(20)).logits for model in found.models]).mean(0)
    found.temperature.fill_(2.5)
    verdicts = found(rows(20))
    assert torch.allclose(verdicts.probs, (logits / 2.5).softmax(1), atol=1e-5)
    assert torch.equal(verdicts.classes, logits.argmax(1))


@pytest.mark.parametrize(("says_novel", "decision"), [(False, REJECT), (True, NOVEL)])
@torch.no_grad()
def test_choices_are_the_nearest_centers_by_a_slow_twin(says_novel, decision):
    found = ensemble_of(says_novel=says_novel)[0]
    (_, space, own), (_, other, strange) = centers_of(COUNTS, 1), centers_of((3,), 2)
    given = rows(80, 5)
    verdicts, parts, clusters = found(given), space.apply(given), other.apply(given)
    for row in range(80):
        centers = own[int(verdicts.classes[row])]
        assert verdicts.subclasses[row] == np.argmax(centers @ parts[row])
        if verdicts.decisions[row] == ACCEPT:
            assert verdicts.clusters[row] == NO_CLASS
        else:
            assert verdicts.decisions[row] == decision
            assert verdicts.clusters[row] == np.argmax(strange[0] @ clusters[row])
    assert set(verdicts.decisions.tolist()) == {ACCEPT, decision}
    affinities = found.affinities(given)
    assert affinities.subclasses.shape == (80, KNOWN, 4)
    for group, count in enumerate(COUNTS):  # what a class does not have is below all cosines
        assert (affinities.subclasses[:, group, count:] == OUTSIDE).all()
        wanted = parts @ own[group].T
        assert affinities.subclasses[:, group, :count].numpy() == pytest.approx(wanted, abs=1e-5)
    assert affinities.clusters.numpy() == pytest.approx(clusters @ strange[0].T, abs=1e-5)


@torch.no_grad()
def test_a_sub_class_that_a_class_does_not_have_is_not_chosen_even_at_the_opposite_side():
    centers, space, _ = centers_of(COUNTS, 1)
    given = rows(50)
    opposite = -torch.from_numpy(space.apply(given)).float()
    for row in range(50):
        centers.centers[:] = opposite[row]
        assert centers.by_group(given[row : row + 1])[0].argmax(1)[1] == 0


@pytest.mark.parametrize("says_novel", [False, True])
@torch.no_grad()
def test_without_clusters_what_is_not_accepted_is_rejected(says_novel):
    found = ensemble_of(clusters=0, says_novel=says_novel)[0]
    verdicts = found(rows(80, 5))
    assert set(verdicts.decisions.tolist()) == {ACCEPT, REJECT}
    assert set(verdicts.clusters.tolist()) == {NO_CLASS}
    assert found.affinities(rows(80)).clusters.shape == (80, 0)
    plain = FoldEnsemble([random_model(0)], [0])
    assert (plain.subclass_counts, plain.num_clusters, plain.inputs) == ((1,) * 3, 0, INPUTS)
    alone = plain(rows(80))
    assert set(alone.decisions.tolist()) == {ACCEPT}
    assert set(alone.subclasses.tolist()) == {0}
    assert ((alone.id_scores > 0) & (alone.id_scores < 1)).all()


@torch.no_grad()
def test_ranges_hold_the_score_and_grow_with_the_tolerance():
    found = ensemble_of()[0]
    ids = found(rows(60)).id_scores
    same = found.id_score_range(rows(60), 0.0)
    assert torch.equal(same[0], ids)
    assert torch.equal(same[1], ids)
    low, high = found.id_score_range(rows(60), 0.2)
    assert (low < ids).all()
    assert (ids < high).all()
    scores = found.by_model(rows(60))[1]
    room = 0.2 * scores.abs().clamp_min(1)
    assert torch.equal(low, found.id_scores(scores - room))


@pytest.mark.parametrize("settled", [False, True])
def test_no_bit_of_a_row_depends_on_the_rows_beside_it(settled):
    found = ensemble_of()[0].double()
    if settled:
        found.settle()
    given = rows(37, 5).double()

    def numbers(some):
        verdicts = found(some)
        affinities = torch.cat([part.flatten(1) for part in found.affinities(some)], 1)
        return torch.cat([verdicts.probs, verdicts.id_scores[:, None], affinities], 1)

    together = compute_rows(numbers, given)
    alone = torch.cat([compute_rows(numbers, given[row : row + 1]) for row in range(37)])
    assert torch.equal(together, alone)
    assert torch.equal(compute_rows(numbers, given.flip(0)).flip(0), together)
    with row_by_row():
        exact = found(given)
    with torch.no_grad():
        usual = found(given)
    assert torch.allclose(exact.id_scores, usual.id_scores, atol=1e-12)
    assert torch.allclose(exact.probs, usual.probs, atol=1e-12)


@pytest.mark.parametrize("count", [1, MOST_STACKED, MOST_STACKED + 1])
@torch.no_grad()
def test_settled_models_judge_side_by_side_as_one_after_the_other(count):
    found, settled = ensemble_of()[0].double(), ensemble_of()[0]
    settled.settle()
    settled.double()  # what was put side by side moves along
    given = rows(count, 5).double()
    for own, wanted in zip(settled.by_model(given), found.by_model(given), strict=True):
        assert torch.allclose(own, wanted, rtol=1e-5, atol=1e-5)  # settled in float32
    assert list(settled.state_dict()) == list(found.state_dict())
    for model in settled.models:
        model.axes.zero_()  # no longer asked, up to so many rows
    same = torch.allclose(settled.by_model(given)[0], found.by_model(given)[0], atol=1e-5)
    assert same == (count <= MOST_STACKED)


@torch.no_grad()
def test_models_side_by_side_judge_no_rows_as_none():
    settled = ensemble_of()[0]
    settled.settle()
    assert settled.stack is not None
    verdicts = settled(torch.zeros(0, INPUTS))
    assert verdicts.probs.shape == (0, KNOWN)
    assert verdicts.id_scores.shape == verdicts.decisions.shape == (0,)


@pytest.mark.parametrize("kind", ["fission with offset", "tied", "linear", "mlp", "sizes"])
@torch.no_grad()
def test_settled_models_of_any_kind_judge_as_before(kind):
    heads = {
        "fission with offset": HeadSpec("fission", prototypes=2, offset=0.7, temperature=3.0),
        "tied": HeadSpec("fission", prototypes=4, novel_prototypes=2),
        "linear": HeadSpec("linear"),
    }
    adapter = AdapterSpec("mlp", width=4, hidden=5) if kind == "mlp" else ADAPTER
    head = heads.get(kind, HEAD)
    models = [random_model(seed, head, adapter) for seed in range(2)]
    if kind == "sizes":
        models.append(random_model(2, reduced=8))
    found = FoldEnsemble(models, [0] * len(models)).double()
    wanted = found.by_model(rows(9).double())
    found.settle()
    assert (found.stack is None) == (kind in ("linear", "mlp", "sizes"))
    for own, other in zip(found.by_model(rows(9).double()), wanted, strict=True):
        assert torch.allclose(own, other, rtol=1e-9, atol=1e-9)


def test_typical_features_are_spread_as_those_of_the_first_model():
    found = ensemble_of()[0]
    first = found.models[0]
    first.scale[2] = 0
    noise = torch.ones(1, INPUTS)
    wanted = first.mean + 1 / first.scale
    wanted[2] = first.mean[2]
    assert torch.allclose(found.typical(noise)[0], wanted)


@pytest.mark.parametrize(
    ("made_as", "new", "parts"), [(2, ("free", "points"), 3), (3, ("points",), 4)]
)
@torch.no_grad()
def test_a_bundle_of_an_older_format_opens_as_it_was_saved_before(tmp_path, made_as, new, parts):
    """Its sizes did not say what is new since, and its score has as many parts as then."""
    ensemble = ensemble_of(**dict.fromkeys(new, 0))[0]
    facts = {"fingerprint": "of no encoder", "num_features": INPUTS, "size": 32}
    names = ("cat", "dog", "cow")
    Bundle.of(ensemble, names, OwnBackbone("simclr-cifar10"), facts).save(tmp_path / "b")

    path = tmp_path / "b" / MANIFEST
    content = json.loads(path.read_bytes())
    content.pop("seal")
    content["format"] = made_as
    for name in new:
        assert [sizes.pop(name) for sizes in content["models"]] == [0] * MODELS
    path.write_bytes(seal_manifest(content))

    again = Bundle.load(tmp_path / "b").calibrated_model
    assert again.models[0].score_scales.shape == (parts,)
    for mine, others in zip(ensemble(rows(40)), again(rows(40)), strict=True):
        assert torch.equal(mine, others)
