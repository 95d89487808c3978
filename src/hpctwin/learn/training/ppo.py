"""Training with PyTorch, Stable-Baselines3 and sb3-contrib."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from hpctwin.errors import ConfigError, PolicyError
from hpctwin.learn.training.trial import Best, Learnt, kept_on_error

if TYPE_CHECKING:
    from hpctwin.learn.environments.sb3 import Sb3VecEnv
    from hpctwin.learn.training.trial import Plan, Trial

__all__ = ["NAME", "VERSIONS", "fit"]

NAME = "sb3-contrib MaskablePPO"
VERSIONS = {
    "torch": torch.__version__,
    "stable-baselines3": stable_baselines3.__version__,
    "sb3-contrib": sb3_contrib.__version__,
}
TRIES = 5
IMITATIONS = 12
"""Number of passes over the imitated choices."""

LAST = "last.zip"
RETURNS = "returns.npz"


class Networks(nn.Module):
    """Network that chooses, and network that estimates future reward.

    If each row of the observation is a job, one small network scores each row, as in RLScheduler.
    The future reward is then estimated from the mean and the maximum over rows.
    """

    def __init__(
        self, shape: tuple[int, ...], choices: int, layers: tuple[int, ...], by_row: bool
    ) -> None:
        super().__init__()
        self.shape, self.by_row = shape, by_row
        inputs = shape[-1] if by_row else int(np.prod(shape))
        self.actor = _stack((inputs, *layers, 1 if by_row else choices))
        self.rowless = nn.Parameter(torch.zeros(choices - shape[0] if by_row else 0))
        self.critic = _stack((2 * inputs if by_row else inputs, 64, 64))
        self.latent_dim_pi, self.latent_dim_vf = choices, 64

    def learnt(self) -> Learnt:
        """Return the network that chooses."""
        layers = [
            (one.weight.detach().numpy().copy(), one.bias.detach().numpy().copy())
            for one in self.actor
            if isinstance(one, nn.Linear)
        ]
        return Learnt(layers, self.rowless.detach().numpy().copy())

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores, and the features of the value estimate."""
        return self.forward_actor(seen), self.forward_critic(seen)

    def forward_actor(self, seen: torch.Tensor) -> torch.Tensor:
        """Return the score of each choice."""
        if not self.by_row:
            scores: torch.Tensor = self.actor(seen)
            return scores
        rows = seen.view(len(seen), *self.shape)
        # Most places are empty and masked, so they need no score.
        there = rows.ne(0).any(dim=-1)
        found = rows.new_zeros(there.shape)
        found[there] = self.actor(rows[there]).squeeze(-1)
        return torch.cat([found, self.rowless.expand(len(seen), -1)], dim=1)

    def forward_critic(self, seen: torch.Tensor) -> torch.Tensor:
        """Return the features of the value estimate."""
        if self.by_row:
            rows = seen.view(len(seen), *self.shape)
            seen = torch.cat([rows.mean(dim=1), rows.amax(dim=1)], dim=1)
        found: torch.Tensor = torch.tanh(self.critic(seen))
        return found


def _stack(sizes: tuple[int, ...]) -> nn.Sequential:
    parts: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        parts += [nn.Linear(inputs, outputs), nn.Tanh()]
    return nn.Sequential(*parts[:-1])


class Chooser(MaskableActorCriticPolicy):
    """Policy of Stable-Baselines3 with the scores of `Networks`."""

    def __init__(self, *given: Any, layers: tuple[int, ...], by_row: bool, **options: Any) -> None:
        self._own = layers, by_row
        super().__init__(*given, **options)

    def _build_mlp_extractor(self) -> None:
        layers, by_row = self._own
        space: Any = self.action_space
        one = isinstance(space, spaces.Discrete)
        choices = int(space.n) if one else 2 * int(np.prod(space.shape))
        shape: Any = self.observation_space.shape
        self.mlp_extractor: Any = Networks(shape, choices, layers, by_row)

    def _build(self, lr_schedule: Any) -> None:
        super()._build(lr_schedule)
        self.action_net: Any = nn.Identity()
        options: dict[str, Any] = dict(self.optimizer_kwargs)
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1), **options)


class _Watch(BaseCallback):
    """Callback that reports progress and saves the state of training."""

    def __init__(
        self,
        plan: Plan,
        best: Best,
        trial: Trial | None,
        progress: Callable[[float, float], None] | None,
    ) -> None:
        super().__init__()
        self.plan, self.best, self.trial, self.progress = plan, best, trial, progress
        self.kept = self.tried = 0
        self.earned: list[float] = []
        self._sums: Any = None

    def _on_training_start(self) -> None:
        self.kept = self.tried = self.num_timesteps
        self.try_it()

    def try_it(self) -> None:
        """Try the present network on the trial episodes."""
        if self.trial is not None:
            earned = self.trial.play(
                lambda seen, masks: self.model.predict(
                    seen, deterministic=True, action_masks=masks
                )[0]
            )
            self.best.offer(earned, learnt_of(self.model))

    def _on_step(self) -> bool:
        earned = self.locals["env"].get_original_reward()
        if not np.isfinite(earned).all():
            raise PolicyError("a reward is not a finite number; check the reward function")
        self._sums = earned.copy() if self._sums is None else self._sums + earned
        for number in np.flatnonzero(self.locals["dones"]).tolist():
            self.earned.append(float(self._sums[number]))
            self._sums[number] = 0.0
        return True

    def _on_rollout_end(self) -> None:
        lately = float(np.mean(self.earned[-50:])) if self.earned else float("nan")
        self.logger.record("rollout/earned", lately)
        if self.progress is not None:
            self.progress(min(self.num_timesteps / self.plan.steps, 1.0), lately)
        if self.num_timesteps - self.tried >= self.plan.steps / TRIES:
            self.tried = self.num_timesteps
            self.try_it()
        if self.num_timesteps - self.kept >= self.plan.every:
            self.kept = self.num_timesteps
            if self.plan.checkpoints is not None:
                keep(self.model, self.best, self.plan.checkpoints)


def learnt_of(model: Any) -> Learnt:
    """Return the network that chooses."""
    networks: Networks = model.policy.mlp_extractor
    return networks.learnt()


def imitate(model: Any, shown: tuple[Any, Any]) -> None:
    """Learn to choose the first place, as an ordering does if places are in its order.

    Args:
        model: Model to train.
        shown: Observations [n, …], and allowed choices [n, choices].
    """
    seen, masks = shown
    fit_choices(model.policy.mlp_extractor, seen, masks, np.zeros(len(seen), np.int64), IMITATIONS)


def fit_choices(networks: Networks, seen: Any, masks: Any, chosen: Any, passes: int) -> None:
    """Adapt the network that chooses to given choices.

    Args:
        networks: Networks to train.
        seen: Observations [n, …].
        masks: Allowed choices [n, choices].
        chosen: Choices [n].
        passes: Number of passes over the choices.
    """
    seen, masks, chosen = (torch.as_tensor(one) for one in (seen, masks, chosen))
    optimizer = torch.optim.Adam(networks.actor.parameters(), lr=3e-3)
    for _ in range(passes):
        for part in torch.randperm(len(seen)).split(256):
            scores = networks.forward_actor(seen[part].flatten(1))
            scores = scores.masked_fill(~masks[part], -1e8)
            loss = nn.functional.cross_entropy(scores, chosen[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def imitated(
    seen: Any,
    masks: Any,
    chosen: Any,
    layers: tuple[int, ...],
    passes: int,
    *,
    by_row: bool,
    seed: int,
) -> Learnt:
    """Return a network that learned given choices; arguments as for `Networks`, `fit_choices`."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    networks = Networks(seen.shape[1:], masks.shape[1], layers, by_row)
    fit_choices(networks, seen, masks, chosen, passes)
    return networks.learnt()


def keep(model: Any, best: Best, folder: Path) -> None:
    """Write the state of training."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder / f"new-{LAST}"
    model.save(aside)
    running = model.get_env()
    np.savez(
        folder / f"new-{RETURNS}",
        mean=running.ret_rms.mean,
        var=running.ret_rms.var,
        count=running.ret_rms.count,
        **best.arrays(),
    )
    # Both files are written in full before either replaces the old one.
    (folder / f"new-{RETURNS}").replace(folder / RETURNS)
    aside.replace(folder / LAST)


def fit(
    many: Sb3VecEnv,
    plan: Plan,
    *,
    by_row: bool,
    whole: bool,
    trial: Trial | None,
    shown: tuple[Any, Any] | None,
    progress: Callable[[float, float], None] | None,
) -> tuple[Learnt, int]:
    """Train; return the network and the number of steps.

    Args:
        many: The environments.
        plan: Training plan.
        by_row: Whether each row of the observation is scored on its own.
        whole: Whether the undiscounted sum of rewards over an episode counts.
        trial: Episodes on which networks are tried; None to keep the last.
        shown: Choices to imitate first; None for none.
        progress: As for `training.train`.

    Raises:
        ConfigError: The saved state is of another training, or TensorBoard is not installed.
    """
    if plan.tensorboard is not None and find_spec("tensorboard") is None:
        raise ConfigError(
            "TensorBoard's logs need tensorboard, which is not installed: pip install tensorboard"
        )
    torch.set_num_threads(1)
    discount = plan.discount if plan.discount is not None else (1.0 if whole else 0.99)
    scaled = VecNormalize(many, norm_obs=False, norm_reward=True, gamma=min(discount, 0.9999))
    best = Best()
    last = None if plan.checkpoints is None else plan.checkpoints / LAST
    if last is not None and last.is_file():
        try:
            model = MaskablePPO.load(last, env=scaled, device="cpu")
        except (ValueError, KeyError) as error:
            raise ConfigError(
                f"{last} contains another training ({error}); use another folder"
            ) from error
        with np.load(last.parent / RETURNS) as kept:
            for name in ("mean", "var", "count"):
                setattr(scaled.ret_rms, name, kept[name])
            best.restore(kept)
    else:
        model = MaskablePPO(
            Chooser,
            scaled,
            learning_rate=plan.rate,
            n_steps=plan.horizon,
            batch_size=max(64, plan.horizon * plan.environments // 8),
            n_epochs=plan.epochs,
            gamma=discount,
            gae_lambda=0.97,
            ent_coef=plan.entropy,
            seed=plan.seed,
            device="cpu",
            tensorboard_log=None if plan.tensorboard is None else str(plan.tensorboard),
            policy_kwargs={"layers": plan.layers, "by_row": by_row},
        )
        if shown is not None:
            imitate(model, shown)
    if plan.tensorboard is None:
        # By default it would create a folder for logs in the system's temporary folder, and leave
        # it there.
        model.set_logger(Logger(folder=None, output_formats=[]))
    left = plan.steps - model.num_timesteps
    if left > 0:
        watch = _Watch(plan, best, trial, progress)
        with kept_on_error(plan.checkpoints, partial(keep, model, best)):
            model.learn(left, watch, reset_num_timesteps=False)
            watch.try_it()
        if plan.checkpoints is not None:
            keep(model, best, plan.checkpoints)
    return best.learnt or learnt_of(model), int(model.num_timesteps)
