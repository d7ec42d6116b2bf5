// Stands in for torch's umbrella header: its parts that kernels' host code uses are in the precompiled prelude. What needs more does not
// compile, and is compiled again with the real header.
#pragma once
