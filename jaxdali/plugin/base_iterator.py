"""`LastBatchPolicy`, under DALI's name for its module. This file is the index."""

from .._iterator.options import LastBatchPolicy as LastBatchPolicy
