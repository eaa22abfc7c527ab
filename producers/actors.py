"""The newest policy -> the actor of one worker's environments."""

from __future__ import annotations

from infra.control.role import RoleContext
from producers.acting import Actor, RandomActor
from producers.categorical_actor import CategoricalActor
from producers.exploration import epsilon_ladder
from producers.gaussian_actor import GaussianActor
from producers.memory import Memory
from producers.policy import Policy, PolicySession, open_graph
from producers.policy_feed import PolicyFeed
from producers.q_actor import QActor
from producers.remote_tensors import RemoteTensors
from schemas.records import EnvDescription, PolicyGraph
from schemas.sizes import stacked
from schemas.tensors import Array


class Actors:
    """Makes actors from the policies of one run.

    Attributes:
        feed: those policies.
        remote: brings the tensors of large ones; to be closed.
    """

    def __init__(
        self, context: RoleContext, env: EnvDescription, num_envs: int, *, greedy: bool
    ) -> None:
        self.remote = RemoteTensors.of(context)
        self.feed = PolicyFeed(context.run_id, self._open_graph, remote=self.remote)
        self._context = context
        self._spec = context.spec
        self._env = env
        self._num_envs = num_envs
        self._greedy = greedy

    def first(self) -> Actor:
        """Return an actor that remembers nothing: the newest policy's, or random."""
        policy = self.feed.current
        if policy is None:
            stack = self._spec.env.frame_stack
            seen = [stacked(field, stack) for field in self._env.observation]
            memory = Memory(seen, (), self._num_envs, stack)
            return RandomActor(self._env.action, self._num_envs, memory)
        return self.make(policy)

    def newest(self, before: Actor) -> Actor:
        """Return ``before``, or the actor of a newer policy that goes on from it."""
        policy = self.feed.current
        if policy is None or policy.ref <= before.ref:
            return before
        actor = self.make(policy)
        actor.memory.take_over(before.memory)
        return actor

    def make(self, policy: Policy) -> Actor:
        """Return a policy's actor."""
        graph, stack = policy.session.graph, self._spec.env.frame_stack
        if graph.head == "q":
            return QActor(policy, self._num_envs, self._epsilons(graph), stack)
        greedy = self._greedy or graph.exploration == "none"
        make = CategoricalActor if graph.head == "categorical" else GaussianActor
        return make(policy, self._num_envs, greedy=greedy, frame_stack=stack)

    def _epsilons(self, graph: PolicyGraph) -> Array:
        spec = self._spec.workers.exploration
        epsilon = graph.exploration_options.get("epsilon", spec.epsilon)
        alpha = graph.exploration_options.get("alpha", spec.alpha)
        if self._greedy or graph.exploration == "none":
            epsilon = 0.0
        first = self._context.index * self._num_envs
        # A worker beyond those that there may be is one that is about to be removed.
        total = max(
            self._spec.workers.most_replicas * self._num_envs, first + self._num_envs
        )
        return epsilon_ladder(epsilon, alpha, total, first, self._num_envs)

    def _open_graph(self, graph: PolicyGraph) -> PolicySession:
        return open_graph(graph, self._env, self._spec.env.frame_stack)
