"""What all networks begin with: observations -> features."""

from collections.abc import Mapping

from torch import Tensor, nn

from learner.networks.encoder import Encoder
from learner.networks.layers import mlp
from learner.networks.lstm import Lstm
from schemas.experiment import NetworkSpec
from schemas.records import SpaceField

NO_STATES: Mapping[str, Tensor] = {}


class Torso(nn.Module):
    """Encoders, then an MLP, then an LSTM where the spec wants one.

    Attributes:
        features: F, how wide its output is.
        states: the fields of the recurrent state; none without an LSTM.
    """

    def __init__(self, observation: tuple[SpaceField, ...], spec: NetworkSpec) -> None:
        super().__init__()
        self.encoder = Encoder(observation, spec.observation_scale, spec.image_encoder)
        width = self.encoder.features
        self.body = mlp(width, spec.hidden, spec.activation)
        width = spec.hidden[-1] if spec.hidden else width
        self.core = Lstm(width, spec.lstm) if spec.lstm else None
        self.features = spec.lstm or width
        self.states = self.core.states if self.core else ()

    def forward(
        self,
        observations: Mapping[str, Tensor],
        states: Mapping[str, Tensor] = NO_STATES,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the features [N, F] of observations [N, ...], and the next states."""
        features: Tensor = self.body(self.encoder(observations))
        if self.core is None:
            return features, {}
        output, after = self.core(features, states)
        return output, after

    def unroll(
        self,
        observations: Mapping[str, Tensor],
        states: Mapping[str, Tensor],
        valid: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the features [L, N, F] of observations [L, N, ...].

        Args:
            observations: by field name.
            states: before the first step, [N, ...] by name.
            valid: [L-1 or more, N] bool; the state is zero before step t + 1 exactly
                where row t is not valid.

        Returns:
            The features, and the states after the last step.
        """
        lead = next(iter(observations.values())).shape[:2]
        rows = {name: values.flatten(0, 1) for name, values in observations.items()}
        features: Tensor = self.body(self.encoder(rows)).unflatten(0, lead)
        if self.core is None:
            return features, {}
        return self.core.unroll(features, states, valid)


def next_states(states: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return states by their names as a network's outputs."""
    return {"next_state/" + name: state for name, state in states.items()}
