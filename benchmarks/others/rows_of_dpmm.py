"""Rows of dpmm on codes, in its own environment: `PYTHON rows_of_dpmm.py IN.npz OUT.npz METHOD EPSILON DELTA SEED`.

METHOD is privbayes, mst or aim. IN.npz has `codes` (n, d) and `sizes` (d,); OUT.npz gets `codes` of as many rows and the CPU
`seconds` of fit and draw of this process, without imports.
"""

import resource
import sys

import numpy as np
import pandas as pd
from dpmm.pipelines.aim import AIMPipeline
from dpmm.pipelines.mst import MSTPipeline
from dpmm.pipelines.priv_bayes import PrivBayesPipeline

METHODS = {"privbayes": PrivBayesPipeline, "mst": MSTPipeline, "aim": AIMPipeline}


def used() -> float:
    """CPU seconds of this process."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


source, out, method, epsilon, delta, seed = sys.argv[1:7]
given = np.load(source)
codes, sizes = given["codes"], given["sizes"].tolist()
names = [f"c{i}" for i in range(len(sizes))]
start = used()
model = METHODS[method](epsilon=float(epsilon), delta=float(delta), n_jobs=1, disable_processing=True)
model.fit(pd.DataFrame(codes, columns=names), domain=dict(zip(names, sizes)), random_state=int(seed))
found = model.generate(n_records=len(codes), random_state=int(seed))[names].to_numpy()
np.savez(out, codes=np.asarray(found, np.int64), seconds=used() - start)
