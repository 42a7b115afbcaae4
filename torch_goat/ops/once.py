"""Backward passes that cannot be differentiated again, and say so."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, run: Callable, *tensors: Any) -> Any:
        ctx.name = name
        return run(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        no_second_derivative(ctx.name)(ctx)


def differentiable_once(name: str, run: Callable, *tensors: Any) -> Any:
    """``run(*tensors)`` in a backward pass; differentiating the result again raises an error."""
    return _Once.apply(name, run, *tensors) if torch.is_grad_enabled() else run(*tensors)


def no_second_derivative(name: str) -> Callable[..., None]:
    def refuse(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(f"{name} has no second derivative; use backend='reference' for double backward.")

    return refuse
