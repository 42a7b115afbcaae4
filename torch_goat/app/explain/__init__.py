"""Explanations of single predictions: learned orders, contributions of neighbours, and their stability."""

from torch_goat.app.explain.explanation import Effect as Effect
from torch_goat.app.explain.explanation import Explanation as Explanation
from torch_goat.app.explain.explanation import Interaction as Interaction
from torch_goat.app.explain.explanation import Prediction as Prediction
from torch_goat.app.explain.explanation import Reading as Reading
from torch_goat.app.explain.explanation import contributions as contributions
from torch_goat.app.explain.explanation import explain as explain
from torch_goat.app.explain.explanation import interactions as interactions
from torch_goat.app.explain.importance import Feature as Feature
from torch_goat.app.explain.importance import Importance as Importance
from torch_goat.app.explain.importance import features as features
from torch_goat.app.explain.importance import importance as importance
from torch_goat.app.explain.removals import Removal as Removal
from torch_goat.app.explain.removals import outputs_without as outputs_without
from torch_goat.app.explain.stability import Agreement as Agreement
from torch_goat.app.explain.stability import Stability as Stability
from torch_goat.app.explain.stability import stability as stability
