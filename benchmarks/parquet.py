"""Memory of reading predictions of 50,000 samples and 1,000 classes from Parquet, in batches by rows and by size.

Each reading is a process of its own; its peak of memory is the kernel's (VmHWM).

    python benchmarks/parquet.py
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

READ = """
import sys
from pathlib import Path
from confrank.predictions import read, tables
if sys.argv[2] == "65,536 rows":
    tables.BATCH_BYTES = 1 << 50
table = read(sys.argv[1]).table
(line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(table.nbytes / 1e6, int(line.split()[1]) / 1e3)
"""


def main() -> None:
    rng = np.random.default_rng(0)
    logits, label = rng.normal(size=(50_000, 1000)).astype(np.float32), rng.integers(0, 1000, 50_000)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(logits.reshape(-1)), 1000)
    tables = {
        "a list column": pa.table({"label": label, "logits": lists}),
        "1,000 columns": pa.table({"label": label, **{f"logit_{k}": logits[:, k] for k in range(1000)}}),
    }
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, table in tables.items():
            path = Path(folder) / "a.parquet"
            parquet.write_table(table, path)
            for batches in ("65,536 rows", "16 MB"):
                command = [sys.executable, "-c", READ, str(path), batches]
                output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                array, peak = map(float, output.split())
                print(f"{name:<14} batches of {batches:<12} array {array:.0f} MB, peak {peak:,.0f} MB")
                results.append({"file": name, "batches": batches, "array": array, "peak": peak})
    print(json.dumps(results))


if __name__ == "__main__":
    main()
