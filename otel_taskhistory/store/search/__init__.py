# SPDX-License-Identifier: Apache-2.0
"""Full text over what was said and done: each stored value is indexed once.

* `words` makes words of texts, and a query of what somebody typed.
* `documents` says which texts there are, and how to come from a row to them.
* `index` writes the index, in the background of the writer.
* `find` searches, and says where a value first came and how often.
"""
