"""Schedules: range, exact mean, closed form, given mean, conversion to and from text and plain data."""

import json
from fractions import Fraction
from math import pi

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import closed_form

from rst_tune import schedules
from rst_tune.errors import InputError

shares = st.floats(0.0, 1.0)
horizons = st.integers(1, 400)

families = st.one_of(
    st.builds(schedules.constant, shares),
    st.builds(schedules.piecewise, shares, shares),
    st.builds(schedules.linear, shares, shares),
    st.builds(schedules.linear_group1, shares),
    st.builds(schedules.linear_group2, shares),
    st.sampled_from([schedules.cos1(), schedules.cos2(), schedules.sin1(), schedules.sin2()]),
    st.builds(
        lambda heights: schedules.interpolate([(i / len(heights), p) for i, p in enumerate(heights)]),
        st.lists(shares, min_size=1, max_size=5),
    ),
    st.builds(schedules.with_mean, st.sampled_from(schedules.MEAN_FAMILIES.names()), shares, st.just(10), shares),
)
any_schedule = st.one_of(families, st.builds(schedules.warmup, st.floats(0.0, 0.9), families))


@given(any_schedule, horizons)
@settings(deadline=None)
def test_p_is_a_probability_and_the_mean_is_exact(schedule, T):
    values = schedule.values(T)
    assert len(values) == T
    assert all(0.0 <= p <= 1.0 for p in values)
    brute = sum(Fraction(schedule(t, T)) for t in range(1, T + 1)) / T
    assert schedule.extra_propagation(T) == pytest.approx(float(brute), abs=1e-15, rel=1e-14)


@given(st.sampled_from(schedules.MEAN_FAMILIES.names()), shares, horizons, shares)
@settings(deadline=None)
def test_the_mean_is_the_given_one(family, c, T, shape):
    schedule = schedules.with_mean(family, c, T, shape)
    assert abs(schedule.extra_propagation(T) - c) < 1e-12
    assert abs(schedule.extra_propagation(T + 13) - c) < 1e-12  # the mean does not depend on the horizon
    assert closed_form(schedule) == c


@given(any_schedule)
@settings(deadline=None)
def test_data_and_text_give_the_same_schedule_back(schedule):
    data = json.loads(json.dumps(schedule.to_dict()))
    for again in (schedules.from_dict(data), schedules.parse(str(schedule))):
        assert again == schedule
        assert hash(again) == hash(schedule)


@given(any_schedule)
@settings(deadline=None, max_examples=30)
def test_the_closed_form_is_the_limit(schedule):
    assert schedule.extra_propagation(4000) == pytest.approx(closed_form(schedule), abs=4e-3)


@pytest.mark.parametrize(
    ("schedule", "closed"),
    [
        (schedules.constant(0.3), 0.3),
        (schedules.piecewise(0.0, 0.3), 0.7),
        (schedules.piecewise(0.2, 0.4), 1 + 2 * 0.2 * 0.4 - 0.4 - 0.2),
        (schedules.linear_group1(0.2), 0.2),
        (schedules.linear_group1(0.7), 0.7),
        (schedules.linear_group2(0.9), 0.5),
        (schedules.cos1(), 0.5),
        (schedules.cos2(), 0.5),
        (schedules.sin1(), 2 / pi),
        (schedules.sin2(), 1 - 2 / pi),
    ],
    ids=str,
)
def test_the_papers_closed_forms(schedule, closed):
    assert closed_form(schedule) == pytest.approx(closed, abs=1e-15)


@pytest.mark.parametrize(("b", "T"), [(0.29, 100), (0.1, 30), (0.7, 10), (0.57, 100), (1.0, 7), (0.0, 7)])
def test_the_first_stage_has_exactly_its_share_of_steps(b, T):
    values = schedules.piecewise(a=1.0, b=b).values(T)
    assert sum(values) == round(b * T)
    assert list(values) == sorted(values, reverse=True)


def test_the_papers_points():
    assert schedules.linear_group1(0.3)(50, 100) == pytest.approx(0.3)
    assert schedules.linear_group1(0.8)(50, 100) == pytest.approx(0.8)
    assert schedules.linear_group1(0.8)(100, 100) == 1.0
    assert schedules.linear_group2(0.2)(100, 100) == pytest.approx(0.8)
    assert schedules.cos1()(100, 100) == 0.0
    assert schedules.cos2()(100, 100) == 1.0
    assert schedules.sin1()(50, 100) == 1.0


@pytest.mark.parametrize("family", schedules.MEAN_FAMILIES.names())
def test_shape_goes_from_the_constant_to_the_extreme(family):
    if family == "constant":
        return
    flat, far = (schedules.with_mean(family, 0.3, 101, shape).values(101) for shape in (0.0, 1.0))
    assert max(flat) - min(flat) < 1e-12
    assert min(far) == pytest.approx(0.0, abs=1e-12) or max(far) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("up", "down"), [("step-up", "step-down"), ("ramp-up", "ramp-down"), ("cosine-up", "cosine-down")]
)
def test_up_is_down_backwards(up, down):
    rising, falling = (schedules.with_mean(name, 0.35, 50, 0.8).values(50) for name in (up, down))
    assert list(rising) == sorted(rising)
    assert rising == pytest.approx(falling[::-1], abs=1e-12)


def test_a_warmup_has_no_ascents_and_then_the_whole_schedule():
    then = schedules.with_mean("step-down", 0.5, 8)
    assert schedules.warmup(0.2, then).values(10) == (0.0, 0.0, *then.values(8))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: schedules.constant(1.2), r"p\(t = 1\) = 1.2"),
        (lambda: schedules.constant(float("nan")), "finite"),
        (lambda: schedules.constant("0.5"), "number"),
        (lambda: schedules.piecewise(-0.1, 0.5), r"p\(t = 1\) = -0.1"),
        (lambda: schedules.piecewise(0.5, 1.5), "b = 1.5"),
        (lambda: schedules.linear(0.5, 1.5), r"p\(t = T\) = 1.5"),
        (lambda: schedules.linear(0.1, 0.9, 0.4, 0.6), r"p\(t -> 0\)"),
        (lambda: schedules.linear(0.1, 0.9, 0.4, 0.4), "u0 != u1"),
        (lambda: schedules.linear_group1(2), "m = 2"),
        (lambda: schedules.warmup(1.0, schedules.cos1()), "w < 1"),
        (lambda: schedules.warmup(0.1, 0.5), "must be a schedule"),
        (lambda: schedules.interpolate([(0, 0.5), (1, 1.5)]), "p of knot 2 = 1.5"),
        (lambda: schedules.interpolate([(0.5, 0.5), (0.2, 1)]), "must increase"),
        (lambda: schedules.interpolate([]), "at least|one or more"),
        (lambda: schedules.with_mean("step-up", 1.2, 10), "0 <= c <= 1"),
        (lambda: schedules.with_mean("ramp", 0.2, 100), "ramp-up"),
        (lambda: schedules.parse("constant:p"), "family:name=value"),
        (lambda: schedules.parse("constant:p=half"), "half"),
        (lambda: schedules.parse("constnat:p=0.5"), "did you mean 'constant'"),
        (lambda: schedules.from_dict({"family": "constant", "q": 1}), "'q'"),
        (lambda: schedules.from_dict({"family": "piecewise", "a": 1}), "no b"),
        (lambda: schedules.from_dict({"p": 1}), "family"),
        (lambda: schedules.constant(0.5).values(0), "T = 0"),
        (lambda: schedules.constant(0.5)(11, 10), "t = 11"),
    ],
)
def test_wrong_schedules_say_what_is_wrong(build, message):
    with pytest.raises(InputError, match=message):
        build()


def test_a_custom_schedule_is_checked_on_its_horizon():
    class Rising(schedules.Schedule):
        family = "rising"

        def at(self, t, T):
            return t / 10

    assert Rising().extra_propagation(10) == pytest.approx(0.55)
    with pytest.raises(InputError, match=r"p\(t = 11\) = 1.1 \(T = 12\)"):
        Rising().values(12)
