"""Names of the package and where they are defined. __init__.py imports each when it is first used."""

from haybale.collections.queries import queries_from as queries_from

from .bm25 import BM25 as BM25
from .empty_rankings import EmptyRankingWarning as EmptyRankingWarning
from .explanation import Explanation as Explanation
from .explanation import Share as Share
from .grammar import from_spec as from_spec
from .grammar import parse as parse
from .grammar import parse_all as parse_all
from .grammar import parse_value as parse_value
from .grammar import ranker_names as ranker_names
from .grammar import read_yaml as read_yaml
from .grammar import set_all as set_all
from .grammar import set_values as set_values
from .in_space import InSpace as InSpace
from .knn import KNN as KNN
from .learned import Learned as Learned
from .learned_fusion import LearnedFusion as LearnedFusion
from .loading import load as load
from .new_queries import NewQueries as NewQueries
from .new_queries import unseen_queries as unseen_queries
from .out_of_fold import OutOfFold as OutOfFold
from .parm import PARM as PARM
from .query_batch import QueryBatch as QueryBatch
from .ranker import RANKERS as RANKERS
from .ranker import Ranker as Ranker
from .rrf import RRF as RRF
from .similar_queries import SimilarQueries as SimilarQueries
from .svr import SVR as SVR
from .training import Training as Training
from .weighted_bm25 import WeightedBM25 as WeightedBM25
