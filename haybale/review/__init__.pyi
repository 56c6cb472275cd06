"""Names of the package and where they are defined. __init__.py imports each when it is first used."""

from .learner import TopicLearner as TopicLearner
from .reading import Reading as Reading
from .stopping.budget import Budget as Budget
from .stopping.cmh import CMH as CMH
from .stopping.consecutive import Consecutive as Consecutive
from .stopping.iph import IPH as IPH
from .stopping.knee import Knee as Knee
from .stopping.knee_budget import KneeBudget as KneeBudget
from .stopping.qbcb import QBCB as QBCB
from .stopping.quant import Quant as Quant
from .stopping.rule import STOPPING_RULES as STOPPING_RULES
from .stopping.rule import Advice as Advice
from .stopping.rule import StoppingRule as StoppingRule
from .stopping.rule import parse_rule as parse_rule
from .topic_features import TopicFeatures as TopicFeatures
