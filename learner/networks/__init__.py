"""Observations in the space's own dtypes -> what an algorithm wants of them.

Casting, one-hot, scaling and clipping happen in here and nowhere else, so that the
exported actor and the trained network cannot differ.
"""

from learner.networks.action_value import ActionValueNetwork as ActionValueNetwork
from learner.networks.encoder import Encoder as Encoder
from learner.networks.lstm import Lstm as Lstm
from learner.networks.policy_value import PolicyValueNetwork as PolicyValueNetwork
from learner.networks.q_network import QNetwork as QNetwork
from learner.networks.spaces import UnsupportedSpace as UnsupportedSpace
from learner.networks.spaces import box_action as box_action
from learner.networks.spaces import discrete_action as discrete_action
from learner.networks.squashed_gaussian import (
    SquashedGaussianPolicy as SquashedGaussianPolicy,
)
from learner.networks.torso import Torso as Torso
