"""What every optimiser of BoTorch needs of an acquisition function, as a suite to inherit."""

from __future__ import annotations

import warnings

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.models import SingleTaskGP
from botorch.models.model import Model
from botorch.models.transforms import Normalize
from botorch.optim.optimize import (
    optimize_acqf,
    optimize_acqf_cyclic,
    optimize_acqf_discrete,
    optimize_acqf_discrete_local_search,
    optimize_acqf_list,
    optimize_acqf_mixed,
)
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from torch import Tensor

_LEVELS = [0.0, 1.0, 2.0, 3.0]


class AcquisitionContract:
    """Runs every optimiser of BoTorch on an acquisition class.

    Inherit from it in a test file under a name that pytest collects, and say how the function is
    made of a model. Or call :meth:`report` and read which parts fail.

    The problem has three inputs, the last of which takes the values 0 to 3.

    Example:
        >>> from torch_dpfts.acquisition import FederatedThompsonSampling
        >>> class TestOurs(AcquisitionContract):
        ...     def make(self, model):
        ...         return FederatedThompsonSampling(model, seed=0)
        >>> TestOurs().report()["shapes"] is None
        True
    """

    dtype: torch.dtype = torch.float64

    def make(self, model: Model) -> AcquisitionFunction:
        """Build the acquisition function of a model; to be overridden.

        Raises:
            NotImplementedError: Always, here.
        """
        raise NotImplementedError("Say how the acquisition function is made of a model.")

    def report(self) -> dict[str, str | None]:
        """Run everything and return what went wrong, by part; ``None`` where nothing did."""
        result: dict[str, str | None] = {}
        for name in (name for name in dir(self) if name.startswith("test_")):
            try:
                getattr(self, name)()
                outcome = None
            except Exception as error:  # whatever an acquisition function does wrong
                outcome = (
                    f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
                )
            result[name.removeprefix("test_")] = outcome
        return result

    # --- evaluation ---------------------------------------------------------------------

    def test_shapes(self) -> None:
        """``b x q x d -> b`` for every b and q, also when q changes between calls."""
        acqf = self.acquisition()
        for b, q in ((4, 1), (1, 1), (1, 3), (4, 3), (4, 1)):
            shape = tuple(acqf(self.points(b, q)).shape)
            _require(shape == (b,), f"{b} x {q} x 3 gave {shape}, not ({b},)")

    def test_the_same_value_twice(self) -> None:
        """Evaluation is deterministic."""
        acqf, X = self.acquisition(), self.points(5, 1)
        _require(torch.equal(acqf(X), acqf(X)), "two evaluations differ")

    def test_rows_are_independent(self) -> None:
        """A row's value does not depend on the other rows."""
        acqf = self.acquisition()
        for q in (1, 3):
            X = self.points(4, q)
            alone = torch.cat([acqf(x) for x in X.split(1)])
            error = float((acqf(X) - alone).detach().abs().max())
            _require(error < self._tolerance, f"rows change one another by {error:.2g}")

    def test_gradients(self) -> None:
        """Gradients with respect to the candidates are finite."""
        X = self.points(4, 1).requires_grad_()
        (gradient,) = torch.autograd.grad(self.acquisition()(X).sum(), X)
        _require(bool(gradient.isfinite().all()), "a gradient is not finite")

    def test_pending_points_can_be_undone(self) -> None:
        """Pending points are accepted, change something, and leave no trace once undone."""
        acqf, X = self.acquisition(), self.points(5, 1)
        before = acqf(X)
        pending = X[before.argmax()]
        acqf.set_X_pending(pending)
        _require(not torch.equal(acqf(X), before), "a pending point changes nothing")
        acqf.set_X_pending(None)
        _require(torch.equal(acqf(X), before), "an undone pending point leaves a trace")

    def test_moving(self) -> None:
        """The function and all it holds move with ``.to()``."""
        acqf, X = self.acquisition(), self.points(5, 1)
        acqf(X)
        other = torch.float32 if self.dtype == torch.float64 else torch.float64
        values = acqf.to(other)(X.to(other))
        _require(values.dtype == other, f"moved to {other}, it returns {values.dtype}")

    def test_global_generator(self) -> None:
        """Building and evaluating leave torch's global generator alone."""
        model = self.model()
        state = torch.random.get_rng_state()
        self.make(model)(self.points(5, 1))
        _require(torch.equal(state, torch.random.get_rng_state()), "the generator was used")

    # --- optimisers ---------------------------------------------------------------------

    def test_optimize_acqf(self) -> None:
        """One candidate."""
        X, value = optimize_acqf(self.acquisition(), self.bounds, 1, 2, 16)
        self._check(X, 1)
        _require(value is not None and value.ndim == 0, f"the value is {value}, not a scalar")

    def test_optimize_acqf_joint(self) -> None:
        """Three joint candidates."""
        self._check(optimize_acqf(self.acquisition(), self.bounds, 3, 2, 16)[0], 3)

    def test_optimize_acqf_sequential(self) -> None:
        """Three candidates one after the other."""
        X, _ = optimize_acqf(self.acquisition(), self.bounds, 3, 2, 16, sequential=True)
        self._check(X, 3)

    def test_optimize_acqf_inequality_constraints(self) -> None:
        """Under a linear constraint, jointly and one after the other."""
        limit = (torch.tensor([0, 1]), -torch.ones(2, dtype=self.dtype), -0.8)
        for sequential in (False, True):
            X, _ = optimize_acqf(
                self.acquisition(), self.bounds, 2, 2, 16,
                inequality_constraints=[limit], sequential=sequential,
            )  # fmt: skip
            self._check(X, 2)
            _require(bool((X[:, :2].sum(-1) <= 0.8 + 1e-4).all()), "the constraint is broken")

    def test_optimize_acqf_fixed_features(self) -> None:
        """With a dimension held."""
        X, _ = optimize_acqf(
            self.acquisition(), self.bounds, 2, 2, 16, fixed_features={1: 0.25}, sequential=True
        )
        self._check(X, 2)
        _require(bool((X[:, 1] == 0.25).all()), "the held dimension moved")

    def test_optimize_acqf_discrete(self) -> None:
        """Over a list of points."""
        choices = self.points(50, 1).squeeze(-2)
        X, _ = optimize_acqf_discrete(self.acquisition(), 3, choices)
        self._check(X, 3)
        _require(bool((X.unsqueeze(1) == choices).all(-1).any(-1).all()), "not one of the choices")

    def test_optimize_acqf_discrete_local_search(self) -> None:
        """Over a lattice."""
        axis = torch.linspace(0, 1, 6, dtype=self.dtype)
        lattice = [axis, axis, torch.tensor(_LEVELS, dtype=self.dtype)]
        X, _ = optimize_acqf_discrete_local_search(
            self.acquisition(), lattice, 3, num_restarts=2, raw_samples=32
        )
        self._check(X, 3)
        self._check_levels(X)

    def test_optimize_acqf_mixed(self) -> None:
        """With a search for each value of the last input."""
        fixed = [{2: level} for level in _LEVELS]
        X, _ = optimize_acqf_mixed(self.acquisition(), self.bounds, 2, 2, fixed, raw_samples=16)
        self._check(X, 2)
        self._check_levels(X)

    def test_optimize_acqf_mixed_alternating(self) -> None:
        """With steps between the values of the last input."""
        X, _ = optimize_acqf_mixed_alternating(
            self.acquisition(), self.bounds, discrete_dims={2: _LEVELS},
            q=2, raw_samples=16, num_restarts=2, options={"maxiter_alternating": 4},
        )  # fmt: skip
        self._check(X, 2)
        self._check_levels(X)

    def test_optimize_acqf_cyclic(self) -> None:
        """Three candidates, each chosen anew in turn."""
        X, _ = optimize_acqf_cyclic(
            self.acquisition(), self.bounds, 3, 2, 16, cyclic_options={"maxiter": 2}
        )
        self._check(X, 3)

    def test_optimize_acqf_list(self) -> None:
        """A list of functions, each seeing the candidates of those before as pending."""
        acqfs = [self.acquisition() for _ in range(3)]
        self._check(optimize_acqf_list(acqfs, self.bounds, 2, 16)[0], 3)

    # --- the problem --------------------------------------------------------------------

    @property
    def bounds(self) -> Tensor:
        """Bounds of the problem, ``2 x 3``."""
        return torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 3.0]], dtype=self.dtype)

    @property
    def _tolerance(self) -> float:
        return 1e-8 if self.dtype == torch.float64 else 1e-3

    def points(self, b: int, q: int) -> Tensor:
        """Feasible points, ``b x q x 3``, the same ones whenever asked."""
        generator = torch.Generator().manual_seed(b * 100 + q)
        U = torch.rand(b, q, 3, generator=generator, dtype=torch.float64)
        U[..., 2] = (4 * U[..., 2]).floor() / 3
        return U.to(self.dtype) * self.bounds[1]

    def model(self) -> SingleTaskGP:
        """A model of ten observations."""
        X = self.points(10, 1).squeeze(-2)
        Y = (5 * X[:, :1]).sin() + (4 * X[:, 1:2]).cos() - (X[:, 2:] - 1).square() / 4
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # single precision is meant
            return SingleTaskGP(X, Y, input_transform=Normalize(3, bounds=self.bounds)).eval()

    def acquisition(self) -> AcquisitionFunction:
        """The function under test."""
        return self.make(self.model())

    def _check(self, X: Tensor, q: int) -> None:
        lower, upper = self.bounds
        _require(tuple(X.shape) == (q, 3), f"the candidates have shape {tuple(X.shape)}")
        _require(X.dtype == self.dtype, f"the candidates are {X.dtype}")
        slack = 1e-6
        inside = (X >= lower - slack) & (X <= upper + slack)
        _require(bool(inside.all()), "a candidate lies outside the bounds")
        apart = torch.cdist(X, X) + torch.eye(q, dtype=X.dtype)
        _require(bool((apart > 1e-3).all()), "two candidates coincide")

    def _check_levels(self, X: Tensor) -> None:
        levels = torch.tensor(_LEVELS, dtype=self.dtype)
        _require(bool(torch.isin(X[:, 2], levels).all()), "the last input is no level")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
