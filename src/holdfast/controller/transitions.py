"""The state machines of the controller, as tables: a broker as it is seen, and who leads a partition by what right.

Tables only. The states are read off the image, so they cannot disagree with it; brokers.py and election.py ask the
tables what follows and make records of that.
"""

from enum import Enum
from typing import Final

from holdfast.metadata.image import BrokerImage, PartitionImage
from holdfast.metadata.records import RecoveryState
from holdfast.model.transitions import Transitions

# -- a broker --------------------------------------------------------------------------------------------------


class BrokerStanding(Enum):
    """A broker as the controller sees it."""

    UNREGISTERED = "unregistered"
    FENCED = "fenced"
    ACTIVE = "unfenced"
    DRAINING = "shutting down"
    GONE = "fenced while shutting down"

    @property
    def fenced(self) -> bool:
        """It is not alive."""
        return self in (BrokerStanding.FENCED, BrokerStanding.GONE)

    @property
    def drains(self) -> bool:
        """It asked to leave; only a new registration takes that back."""
        return self in (BrokerStanding.DRAINING, BrokerStanding.GONE)


class Sign(Enum):
    """What is heard of a broker, or not."""

    REGISTERED = "registers"
    HEARTBEAT = "heartbeat"
    WANT_SHUTDOWN = "wants to shut down"
    WANT_FENCE = "wants to be fenced"
    DEAD = "silent, or its port refuses"
    UNREGISTERED = "unregistered by a person"


BROKER: Final = Transitions(
    starts=(BrokerStanding.UNREGISTERED,),
    moves={
        **{(standing, Sign.REGISTERED): BrokerStanding.FENCED for standing in BrokerStanding},
        (BrokerStanding.FENCED, Sign.HEARTBEAT): BrokerStanding.ACTIVE,
        (BrokerStanding.FENCED, Sign.WANT_SHUTDOWN): BrokerStanding.FENCED,
        (BrokerStanding.FENCED, Sign.WANT_FENCE): BrokerStanding.FENCED,
        (BrokerStanding.ACTIVE, Sign.HEARTBEAT): BrokerStanding.ACTIVE,
        (BrokerStanding.ACTIVE, Sign.WANT_SHUTDOWN): BrokerStanding.DRAINING,
        (BrokerStanding.ACTIVE, Sign.WANT_FENCE): BrokerStanding.FENCED,
        (BrokerStanding.ACTIVE, Sign.DEAD): BrokerStanding.FENCED,
        (BrokerStanding.DRAINING, Sign.HEARTBEAT): BrokerStanding.DRAINING,
        (BrokerStanding.DRAINING, Sign.WANT_SHUTDOWN): BrokerStanding.DRAINING,
        (BrokerStanding.DRAINING, Sign.WANT_FENCE): BrokerStanding.GONE,
        (BrokerStanding.DRAINING, Sign.DEAD): BrokerStanding.GONE,
        (BrokerStanding.GONE, Sign.HEARTBEAT): BrokerStanding.DRAINING,
        (BrokerStanding.GONE, Sign.WANT_SHUTDOWN): BrokerStanding.GONE,
        (BrokerStanding.GONE, Sign.WANT_FENCE): BrokerStanding.GONE,
        # One that lives would register again with its next heartbeat: it is refused.
        (BrokerStanding.FENCED, Sign.UNREGISTERED): BrokerStanding.UNREGISTERED,
        (BrokerStanding.GONE, Sign.UNREGISTERED): BrokerStanding.UNREGISTERED,
    },
)


def standing(broker: BrokerImage | None) -> BrokerStanding:
    """The state of a broker; None: it is not registered."""
    if broker is None:
        return BrokerStanding.UNREGISTERED
    if broker.in_controlled_shutdown:
        return BrokerStanding.GONE if broker.fenced else BrokerStanding.DRAINING
    return BrokerStanding.FENCED if broker.fenced else BrokerStanding.ACTIVE


# -- who leads a partition -------------------------------------------------------------------------------------


class Leadership(Enum):
    """Whether a partition is led, and whether by one that had everything."""

    LED = "led"
    RECOVERING = "led, recovering"
    WAITING = "no leader"
    WAITING_TO_RECOVER = "no leader, not recovered"


class Ground(Enum):
    """By what right somebody leads from now on; the first that holds counts. READY is the leader's own word."""

    IN_SYNC = "one in sync"
    ELIGIBLE = "one eligible"
    LAST_KNOWN = "the longest that counted, damaged"
    UNCLEAN = "anyone, where allowed"
    NOBODY = "nobody may"
    READY = "leader says ready"


LEADERSHIP: Final = Transitions(
    starts=(Leadership.LED,),
    moves={
        (Leadership.LED, Ground.IN_SYNC): Leadership.LED,
        (Leadership.LED, Ground.ELIGIBLE): Leadership.LED,
        (Leadership.LED, Ground.UNCLEAN): Leadership.RECOVERING,
        (Leadership.LED, Ground.NOBODY): Leadership.WAITING,
        (Leadership.WAITING, Ground.IN_SYNC): Leadership.LED,
        (Leadership.WAITING, Ground.ELIGIBLE): Leadership.LED,
        (Leadership.WAITING, Ground.LAST_KNOWN): Leadership.RECOVERING,
        (Leadership.WAITING, Ground.UNCLEAN): Leadership.RECOVERING,
        (Leadership.WAITING, Ground.NOBODY): Leadership.WAITING,
        # Who recovers is the only one in the ISR, and nobody else is eligible.
        (Leadership.RECOVERING, Ground.READY): Leadership.LED,
        (Leadership.RECOVERING, Ground.UNCLEAN): Leadership.RECOVERING,
        (Leadership.RECOVERING, Ground.NOBODY): Leadership.WAITING_TO_RECOVER,
        (Leadership.WAITING_TO_RECOVER, Ground.IN_SYNC): Leadership.RECOVERING,
        (Leadership.WAITING_TO_RECOVER, Ground.LAST_KNOWN): Leadership.RECOVERING,
        (Leadership.WAITING_TO_RECOVER, Ground.UNCLEAN): Leadership.RECOVERING,
        (Leadership.WAITING_TO_RECOVER, Ground.NOBODY): Leadership.WAITING_TO_RECOVER,
    },
)


def leadership(partition: PartitionImage) -> Leadership:
    """The state of a partition."""
    recovered = partition.recovery_state is RecoveryState.RECOVERED
    if partition.leader is None:
        return Leadership.WAITING if recovered else Leadership.WAITING_TO_RECOVER
    return Leadership.LED if recovered else Leadership.RECOVERING
