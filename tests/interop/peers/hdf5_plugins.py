"""Where hdf5plugin keeps its filters, which any program with the HDF5 library can load."""
import json

import hdf5plugin

print(json.dumps({"path": hdf5plugin.PLUGINS_PATH}))
