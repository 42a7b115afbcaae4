import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from torch_goat.ops.launches import cdiv, next_power_of_2


@given(st.integers(0, 2**40), st.integers(1, 2**20))
def test_blocks_cover_all_elements(number: int, size: int) -> None:
    assert cdiv(number, size) == math.ceil(Fraction(number, size))


@given(st.integers(1, 2**40))
def test_the_next_power_of_two(number: int) -> None:
    found = next_power_of_2(number)
    assert found.bit_count() == 1
    assert found // 2 < number <= found
