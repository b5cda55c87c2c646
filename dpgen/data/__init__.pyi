"""Public names of dpgen.data, for type checkers and for `lazy_loader`, which imports each on first use."""

from .columns import Columns as Columns
from .columns import load_columns as load_columns
from .images import Images as Images
from .images import load_cifar10 as load_cifar10
from .images import load_digits as load_digits
from .images import load_fashion_mnist as load_fashion_mnist
from .images import load_images as load_images
from .images import load_mnist as load_mnist
from .linked import LinkedTables as LinkedTables
from .linked import load_linked as load_linked
from .linked import load_sql_linked as load_sql_linked
from .loaders import LOADERS as LOADERS
from .points import Points as Points
from .points import load_points as load_points
from .raw_tables import RawTable as RawTable
from .raw_tables import draft_schema as draft_schema
from .records import Records as Records
from .records import load_records as load_records
from .sets import load_sets as load_sets
from .stored import MappedRecords as MappedRecords
from .stored import MappedRows as MappedRows
from .stored import load_mapped as load_mapped
from .tables import Table as Table
from .tables import load_table as load_table
from .toy import load_mixture as load_mixture
from .toy import load_mixture_1d as load_mixture_1d
from .toy import load_ring as load_ring
from .users import Users as Users
from .users import load_events as load_events
from .users import load_synthetic_users as load_synthetic_users

__all__ = [
    "LOADERS",
    "Columns",
    "Images",
    "LinkedTables",
    "MappedRecords",
    "MappedRows",
    "Points",
    "RawTable",
    "Records",
    "Table",
    "Users",
    "draft_schema",
    "load_cifar10",
    "load_columns",
    "load_digits",
    "load_events",
    "load_fashion_mnist",
    "load_images",
    "load_linked",
    "load_mapped",
    "load_mixture",
    "load_mixture_1d",
    "load_mnist",
    "load_points",
    "load_records",
    "load_ring",
    "load_sets",
    "load_sql_linked",
    "load_synthetic_users",
    "load_table",
]
