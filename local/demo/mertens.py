"""Mertens' function by another way than the jobs', to check their results."""

from functools import cache


def mertens(most: int) -> int:
    """M(most) by the recursion M(n) = 1 − Σ M(⌊n/k⌋): another way than the jobs', as a check."""
    root = round(most ** (2 / 3)) + 1
    moebius = [1] * (root + 1)
    composite = bytearray(root + 1)
    for prime in range(2, root + 1):
        if composite[prime]:
            continue
        for multiple in range(prime, root + 1, prime):
            composite[multiple] = multiple > prime
            moebius[multiple] = -moebius[multiple]
        for multiple in range(prime * prime, root + 1, prime * prime):
            moebius[multiple] = 0
    sums = [0] * (root + 1)
    for number in range(1, root + 1):
        sums[number] = sums[number - 1] + moebius[number]

    @cache
    def total(number: int) -> int:
        if number <= root:
            return sums[number]
        result, first = 1, 2
        while first <= number:
            quotient = number // first
            last = number // quotient
            result -= (last - first + 1) * total(quotient)
            first = last + 1
        return result

    return total(most)
