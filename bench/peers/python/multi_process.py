"""Files of prometheus_client in multi-process mode: a writer of many, and a server that shows them.

`write FOLDER FILES SERIES` makes a file for each of some workers, each with a counter in its own
series. For each line on standard input, all series grow once, and a line is printed.
`serve PORT FOLDER` shows the files to scrapers, like the documentation of prometheus_client.
"""

import sys
import time


def write(folder, files, series):
    from prometheus_client.mmap_dict import MmapedDict, mmap_key

    def keys(name):
        for number in range(series):
            labels = {
                "segment": name,
                "route": f"/api/v1/r{number:05}",
                "code": str(200 + number % 5),
            }
            yield mmap_key("requests", "requests_total", labels.keys(), labels.values(), "Requests.")

    workers = [
        (MmapedDict(f"{folder}/counter_{number + 1}.db"), list(keys(f"app-{number:03}")))
        for number in range(files)
    ]
    rounds = 0
    while True:
        rounds += 1
        now = time.time()
        for values, names in workers:
            for number, key in enumerate(names):
                values.write_value(key, float(rounds * (1 + number % 7)), now)
        print("written", flush=True)
        if not sys.stdin.readline():
            return


def serve(port, folder):
    from prometheus_client import CollectorRegistry, multiprocess, start_http_server

    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry, path=folder)
    start_http_server(port, addr="127.0.0.1", registry=registry)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", folder, files, series]:
            write(folder, int(files), int(series))
        case ["serve", port, folder]:
            serve(int(port), folder)
        case _:
            sys.exit(__doc__)
