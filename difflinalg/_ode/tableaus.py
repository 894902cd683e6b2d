"""Butcher tableaus, with exact coefficients where their authors give them exactly.

A method advances `y` over a step `h` by

    Y_i = y + h sum_j a[i, j] k_j,    k_i = f(Y_i, t + c[i] h),    y(t + h) = y + h sum_i b[i] k_i

and interpolates inside of the step by `y(t + theta h) = y + h sum_i b_i(theta) k_i` with the
polynomials `b_i(theta) = sum_p dense[i, p] theta^(p + 1)`.
"""

from dataclasses import dataclass
from fractions import Fraction as Q

import numpy as np
from jax.typing import DTypeLike

Row = tuple[Q, ...]


@dataclass(frozen=True, eq=False)
class Tableau:
    """Coefficients of one Runge-Kutta method."""

    name: str
    order: int
    a: tuple[Row, ...]  # one row a stage, padded with zeros
    c: Row
    b: Row
    errors: tuple[Row, ...]  # weights of embedded error estimates; none for a fixed step
    dense: tuple[Row, ...] | None  # polynomials of the interpolant; none: steps end at outputs
    step_stages: int  # the stages that a step needs; the others serve error and interpolant
    error_stages: int  # the stages that error estimate and first-same-as-last need
    error_order: int  # the error estimate is O(h^(error_order + 1))

    @property
    def implicit(self) -> bool:
        """Whether stages are defined by equations (all with the same diagonal entry)."""
        return any(self.a[i][i] != 0 for i in range(len(self.a)))

    @property
    def gamma(self) -> float:
        """The diagonal entry of an implicit method."""
        return float(self.a[-1][-1])

    def array(self, field: str, dtype: DTypeLike, stages: int) -> np.ndarray:
        """One of the coefficient arrays, cut to the first `stages` stages."""
        rows = getattr(self, field)
        values = np.array(
            [[float(x) for x in r] if isinstance(r, tuple) else float(r) for r in rows]
        )
        if field == "a":
            return values[:stages, :stages].astype(dtype)
        if field == "errors":
            return values[:, :stages].astype(dtype)
        return values[:stages].astype(dtype)


def _q(text: str) -> Row:
    return tuple(Q(x) for x in text.split())


def _square(*rows: str) -> tuple[Row, ...]:
    parsed = [_q(row) for row in rows]
    return tuple(r + (Q(0),) * (len(rows) - len(r)) for r in parsed)


def _minus(x: Row, y: Row) -> Row:
    return tuple(u - v for u, v in zip(x, y, strict=True))


def _product(*factors: Row) -> Row:
    """The product of polynomials, lowest power first."""
    result: Row = (Q(1),)
    for factor in factors:
        terms = [Q(0)] * (len(result) + len(factor) - 1)
        for i, x in enumerate(result):
            for j, y in enumerate(factor):
                terms[i + j] += x * y
        result = tuple(terms)
    return result


def _dopri5() -> Tableau:
    """Dormand and Prince (1980), table 2 (RK5(4)7M); interpolant of Shampine (1986), page 148."""
    a = _square(
        "",
        "1/5",
        "3/40 9/40",
        "44/45 -56/15 32/9",
        "19372/6561 -25360/2187 64448/6561 -212/729",
        "9017/3168 -355/33 46732/5247 49/176 -5103/18656",
        "35/384 0 500/1113 125/192 -2187/6784 11/84",
    )
    lower = _q("5179/57600 0 7571/16695 393/640 -92097/339200 187/2100 1/40")
    dense = (
        "1 -8048581381/2820520608 8663915743/2820520608 -12715105075/11282082432",
        "0 0 0 0",
        "0 131558114200/32700410799 -68118460800/10900136933 87487479700/32700410799",
        "0 -1754552775/470086768 14199869525/1410260304 -10690763975/1880347072",
        "0 127303824393/49829197408 -318862633887/49829197408 701980252875/199316789632",
        "0 -282668133/205662961 2019193451/616988883 -1453857185/822651844",
        "0 40617522/29380423 -110615467/29380423 69997945/29380423",
    )
    return Tableau(
        name="Dopri5",
        order=5,
        a=a,
        c=_q("0 1/5 3/10 4/5 8/9 1 1"),
        b=a[6],
        errors=(_minus(a[6], lower),),
        dense=tuple(_q(row) for row in dense),
        step_stages=6,
        error_stages=7,
        error_order=4,
    )


def _tsit5() -> Tableau:
    """Tsitouras (2011), table 1 and section 4; the paper gives decimals."""
    a = _square(
        "",
        "0.161",
        "-0.008480655492356988544426874250230774675121177393430391537369 "
        "0.3354806554923569885444268742502307746751211773934303915374",
        "2.8971530571054933 -6.359448489975074843148159912383825625952700647415626703305 "
        "4.3622954328695815",
        "5.325864828439257 -11.74888356406282787774717033978577296188744178259862899288 "
        "7.4955393428898365 -0.09249506636175525",
        "5.86145544294642 -12.92096931784710929170611868178335939541780751955743459749 "
        "8.159367898576159 -0.071584973281401 -0.028269050394068383",
        "0.09646076681806523 0.01 0.4798896504144996 1.379008574103742 -3.290069515436081 "
        "2.324710524099774",
    )
    error = _q(
        "-0.00178001105222577714 -0.0008164344596567469 0.007880878010261995 "
        "-0.1447110071732629 0.5823571654525552 -0.45808210592918697 1/66"
    )
    x, square = _q("0 1"), _q("0 0 1")
    dense = (
        _product(
            _q("-1.0530884977290216"),
            x,
            _q("-1.3299890189751412 1"),
            _q("0.7139816917074209 -1.4364028541716351 1"),
        ),
        _product(_q("0.1017"), square, _q("1.2949852507374631 -2.1966568338249754 1")),
        _product(
            _q("2.490627285651252793"), square, _q("1.57803468208092486 -2.38535645472061657 1")
        ),
        _product(
            _q("-16.54810288924490272"),
            square,
            _q("-1.21712927295533244 1"),
            _q("-0.61620406037800089 1"),
        ),
        _product(
            _q("47.37952196281928122"),
            square,
            _q("-1.203071208372362603 1"),
            _q("-0.658047292653547382 1"),
        ),
        _product(_q("-34.87065786149660974"), square, _q("-1.2 1"), _q("-0.666666666666666667 1")),
        _product(_q("2.5"), square, _q("-1 1"), _q("-0.6 1")),
    )
    return Tableau(
        name="Tsit5",
        order=5,
        a=a,
        c=_q("0 0.161 0.327 0.9 0.9800255409045097 1 1"),
        b=a[6],
        errors=(error,),
        dense=tuple(row[1:] for row in dense),
        step_stages=6,
        error_stages=7,
        error_order=4,
    )


def _rk4() -> Tableau:
    """The classical method of Kutta (1901); Hermite interpolant of the end points."""
    a = _square("", "1/2", "0 1/2", "0 0 1", "1/6 1/3 1/3 1/6")
    return Tableau(
        name="RK4",
        order=4,
        a=a,
        c=_q("0 1/2 1/2 1 1"),
        b=a[4],
        errors=(),
        dense=None,
        step_stages=4,
        error_stages=5,
        error_order=4,
    )


def _esdirk43() -> Tableau:
    """Kennedy and Carpenter (2003), ARK4(3)6L[2]SA, the implicit part (appendix C).

    Stiffly accurate and L-stable, of stage order 2, with an embedded method of order 3.
    """
    a = _square(
        "",
        "1/4 1/4",
        "8611/62500 -1743/31250 1/4",
        "5012029/34652500 -654441/2922500 174375/388108 1/4",
        "15267082809/155376265600 -71443401/120774400 730878875/902184768 2285395/8070912 1/4",
        "82889/524892 0 15625/83664 69875/102672 -2260/8211 1/4",
    )
    lower = _q(
        "4586570599/29645900160 0 178811875/945068544 814220225/1159782912 "
        "-3700637/11593932 61727/225920"
    )
    return Tableau(
        name="Esdirk43",
        order=4,
        a=a,
        c=_q("0 1/2 83/250 31/50 17/20 1"),
        b=a[5],
        errors=(_minus(a[5], lower),),
        dense=None,
        step_stages=6,
        error_stages=6,
        error_order=3,
    )


DOPRI5 = _dopri5()
TSIT5 = _tsit5()
RK4 = _rk4()
ESDIRK43 = _esdirk43()
