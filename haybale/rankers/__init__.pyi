"""Names of the package and where they are defined. __init__.py imports each when it is first used."""

from haybale.collections.queries import queries_from as queries_from
from haybale.ranking.empty_rankings import EmptyRankingWarning as EmptyRankingWarning
from haybale.ranking.loading import load as load
from haybale.ranking.out_of_fold import OutOfFold as OutOfFold
from haybale.ranking.ranker import RANKERS as RANKERS
from haybale.ranking.ranker import Ranker as Ranker
from haybale.ranking.ranker_texts import from_spec as from_spec
from haybale.ranking.ranker_texts import parse as parse
from haybale.ranking.ranker_texts import parse_all as parse_all
from haybale.ranking.ranker_texts import parse_value as parse_value
from haybale.ranking.ranker_texts import ranker_names as ranker_names
from haybale.ranking.ranker_texts import read_yaml as read_yaml
from haybale.ranking.ranker_texts import set_all as set_all
from haybale.ranking.ranker_texts import set_values as set_values
from haybale.ranking.training import Training as Training
from haybale.search.explanation import Explanation as Explanation
from haybale.search.explanation import Share as Share
from haybale.search.query_batch import QueryBatch as QueryBatch

from .bm25 import BM25 as BM25
from .cut import Cut as Cut
from .in_space import InSpace as InSpace
from .knn import KNN as KNN
from .learned import Learned as Learned
from .models.learned_fusion import LearnedFusion as LearnedFusion
from .models.new_queries import NewQueries as NewQueries
from .models.new_queries import unseen_queries as unseen_queries
from .parm import PARM as PARM
from .popularity import Popularity as Popularity
from .remote import Remote as Remote
from .rrf import RRF as RRF
from .similar_queries import SimilarQueries as SimilarQueries
from .stored import ChangedRunWarning as ChangedRunWarning
from .stored import Stored as Stored
from .svr import SVR as SVR
from .weighted_bm25 import WeightedBM25 as WeightedBM25
