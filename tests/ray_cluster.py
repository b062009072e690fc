"""A Ray cluster of three nodes with one CPU each on this machine, until the standard input closes.

Prints its address and the process of each node except the first, which is the head.
"""

import json
import sys

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}

if __name__ == "__main__":
    from ray.cluster_utils import Cluster  # not at the top: pytest imports every module here to look for doctests

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    nodes = [cluster.add_node(**NODE) for _ in range(2)]
    raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
    print(json.dumps({"address": cluster.address, "nodes": raylets}), flush=True)
    sys.stdin.read()
    cluster.shutdown()
