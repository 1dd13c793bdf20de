"""The store: artefacts on disk, which processes share.

The input is a key (a SHA-256) with files as bytes. The output is an Entry: the files as they were put, or None.

- `store.py`: `Store.get`, `put`, `lock`, and how an entry is verified, bounded in size and evicted.
- `cache_folder.py`: the layout on disk, who owns which name, and what ended processes left behind.
- `key_lock.py`: of several processes that want the same key, one builds and the others wait.

Laws:

- An entry is complete or absent. It is written to a temporary folder and renamed into place, and never changed.
- Every read checks the hashes of the manifest. A damaged entry counts as absent and is built again, with a warning.
- The store reads no pickle, and refuses a folder that other users can write to.
- Nothing is removed from a folder that does not carry the store's marker.
- A store that cannot be used makes a compilation slower, but never fails it.
"""
