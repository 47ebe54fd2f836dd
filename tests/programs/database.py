"""sqlite with an open transaction: what is written is seen by its connection, by no other."""

import sqlite3
import sys
import time

FILE = "/tmp/state.db"
writing = sqlite3.connect(FILE, isolation_level=None)
writing.execute("PRAGMA journal_mode=WAL")
writing.execute("CREATE TABLE rows (step INTEGER PRIMARY KEY, text BLOB)")
writing.execute("BEGIN IMMEDIATE")
steps = int(sys.argv[1])
for step in range(steps):
    writing.execute("INSERT INTO rows VALUES (?, randomblob(10000))", (step,))
    (found,) = writing.execute("SELECT count(*) FROM rows").fetchone()
    assert found == step + 1, f"{found} rows"
    reading = sqlite3.connect(FILE)
    (committed,) = reading.execute("SELECT count(*) FROM rows").fetchone()
    reading.close()
    assert committed == 0, f"{committed} rows are committed"
    print("ok", step, flush=True)
    time.sleep(0.2)
writing.execute("COMMIT")
assert writing.execute("PRAGMA integrity_check").fetchone() == ("ok",)
