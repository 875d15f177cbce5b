"""The prompt classifier: features of any text, weights that are refused, predictions by hand."""

from __future__ import annotations

import subprocess
import sys
from array import array
from math import exp, sqrt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.complexity.explain import explain_prompt
from routing.complexity.features import (
    FIGURES,
    HEAD_CHARACTERS,
    TAIL_CHARACTERS,
    clip,
    extract,
    find_word_hashes,
)
from routing.complexity.predictor import (
    Group,
    Header,
    Part,
    Predictor,
    WeightsError,
    decode_weights,
    encode_weights,
)

BITS = 8
WIDTH = len(FIGURES)
FLAT = (0.0,) * WIDTH


def make_header(*, limit: float | None = 1e9) -> Header:
    groups = () if limit is None else (Group("all", 0, FLAT, (1.0,) * WIDTH, limit),)
    return Header(
        name="test",
        bits=BITS,
        figures=FIGURES,
        means=FLAT,
        deviations=(1.0,) * WIDTH,
        parts=(Part("a / b", (0.5, 0.25), (0.1, 0.2), (FLAT, FLAT)),),
        groups=groups,
        base_rates=(0.4, 0.7),
        length_offset=-0.5,
        length_slope=0.1,
        made_from={"seed": 1},
    )


def make_table(small: dict[str, int], large: dict[str, int]) -> bytes:
    numbers = array("h", [0] * (2 << BITS))
    for half, weights in enumerate((small, large)):
        for word, weight in weights.items():
            (hashed,) = find_word_hashes(word).values()
            numbers[(half << BITS) + (hashed & ((1 << BITS) - 1))] = weight
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def make_predictor(*, limit: float | None = 1e9) -> Predictor:
    return decode_weights(
        encode_weights(make_header(limit=limit), make_table({"proof": -40}, {"proof": 8}))
    )


@given(st.text(alphabet=st.characters(codec=None), max_size=300))
def test_any_text_has_features_and_a_prediction(text: str) -> None:
    features = extract(text)
    assert len(features.figures) == WIDTH
    for limit in (1e9, 1e-9, None):
        prediction = make_predictor(limit=limit).predict(text)
        assert 0 <= prediction.small_suffices <= 1
        assert -1 <= prediction.score <= 1


def test_lone_surrogates_and_nothing_at_all() -> None:
    assert extract("\ud800").figures[0] > 0
    assert extract("").words == set()


def test_case_and_signs_do_not_change_words() -> None:
    assert extract("Prove, that").words == extract("prove THAT").words
    assert extract("prove that").terms == extract("Prove that!").terms
    assert extract("that prove").terms != extract("prove that").terms


def test_a_long_prompt_is_clipped_to_its_head_and_tail() -> None:
    text = "first " + "x " * 100_000 + "last"
    assert len(clip(text)) == HEAD_CHARACTERS + TAIL_CHARACTERS + 1
    assert set(find_word_hashes("first last").values()) <= extract(text).words
    assert extract(text).figures[0] > extract(text[:9000]).figures[0]  # its whole length counts


def test_a_prediction_by_hand() -> None:
    prediction = make_predictor().predict("proof")
    small, large = 0.1 - 40 * 0.5 / sqrt(1), 0.2 + 8 * 0.25 / sqrt(1)
    assert prediction.small_suffices == pytest.approx(1 / (1 + exp(-small)))
    assert prediction.large_suffices == pytest.approx(1 / (1 + exp(-large)))
    assert prediction.score == prediction.large_suffices - prediction.small_suffices
    assert prediction.is_in_domain


@pytest.mark.parametrize("limit", [1e-9, None])
def test_out_of_domain_length_decides(limit: float | None) -> None:
    predictor = make_predictor(limit=limit)
    short, longer = predictor.predict("proof"), predictor.predict("proof " * 50)
    assert not short.is_in_domain
    assert short.score < longer.score
    assert (short.small_suffices, short.large_suffices) == (0.4, 0.7)


def test_the_nearest_part_scores() -> None:
    """Two parts with opposite weights, one for prompts of a line, one for those of many."""
    header = make_header()
    lines = FIGURES.index("log_lines")
    near, far = ((*FLAT[:lines], place, *FLAT[lines + 1 :]) for place in (0.0, 5.0))
    parts = (*header.parts, *header.parts)
    groups = (
        Group("one", 0, near, (1.0,) * WIDTH, 1e9),
        Group("many", 1, far, (1.0,) * WIDTH, 1e9),
    )
    tables = make_table({}, {"proof": 8}) + make_table({"proof": 8}, {})
    both = decode_weights(
        encode_weights(msgspec.structs.replace(header, parts=parts, groups=groups), tables)
    )
    one, many = "proof", "proof" + "\n" * 200
    assert both.predict(one).large_suffices > both.predict(many).large_suffices
    assert both.predict(one).small_suffices < both.predict(many).small_suffices


# Bytes, which are drawn at once: drawing 512 integers one by one is slow, and that is a failure under load.
@given(st.binary(min_size=4 << BITS, max_size=4 << BITS))
def test_joined_weights_come_apart(table: bytes) -> None:
    numbers = array("h", table)
    if sys.byteorder == "big":
        numbers.byteswap()
    predictor = decode_weights(encode_weights(make_header(), table))
    small, large = numbers[: 1 << BITS], numbers[1 << BITS :]
    for hashed in range(1 << BITS):
        assert predictor.weigh(hashed, 0) == large[hashed] * 0.25 - small[hashed] * 0.5


def test_an_explanation_names_what_weighs() -> None:
    found = explain_prompt(make_predictor(), "a proof please")
    assert next(iter(found["words"])) == "proof"
    assert found["words"]["proof"] == pytest.approx((8 * 0.25 + 40 * 0.5) / sqrt(5), abs=1e-3)
    assert found["decided_by"] == "classifier"
    assert explain_prompt(make_predictor(limit=None), "a")["decided_by"] == "length"


def test_damaged_or_foreign_weights_are_refused() -> None:
    data = encode_weights(make_header(), make_table({}, {}))
    assert decode_weights(data).header.bits == BITS
    flipped = bytearray(data)
    flipped[40] ^= 1
    other = msgspec.structs.replace(make_header(), figures=("other", *FIGURES[1:]))
    narrow = msgspec.structs.replace(make_header(), means=FLAT[1:])
    lost = msgspec.structs.replace(make_header(), groups=(Group("x", 1, FLAT, FLAT, 1.0),))
    group = make_header().groups[0]
    uneven = [  # what a prediction would divide by, and more than it has time for
        msgspec.structs.replace(make_header(), deviations=(0.0, *(1.0,) * (WIDTH - 1))),
        make_header(limit=0.0),
        msgspec.structs.replace(
            make_header(), groups=(msgspec.structs.replace(group, spread=FLAT),)
        ),
        msgspec.structs.replace(make_header(), groups=(group,) * 65),
    ]
    for wrong in (
        b"",
        *(encode_weights(header, make_table({}, {})) for header in uneven),
        encode_weights(lost, make_table({}, {})),
        bytes(flipped),
        data[:-40],
        encode_weights(make_header(), b"\0" * 8),
        encode_weights(other, make_table({}, {})),
        encode_weights(narrow, make_table({}, {})),
    ):
        with pytest.raises(WeightsError):
            decode_weights(wrong)


def test_the_request_path_needs_neither_torch_nor_numpy() -> None:
    program = (
        "import sys; import routing.complexity.explain; "
        "sys.exit(bool({'torch', 'numpy', 'pyarrow', 'routing.learned'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
