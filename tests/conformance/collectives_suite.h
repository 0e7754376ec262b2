// What every HostGroup, and Collectives of any device over it, promise on any number of ranks. A
// kind of world and device instantiates CollectivesSuite.
#ifndef CKPT_TESTS_CONFORMANCE_COLLECTIVES_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_COLLECTIVES_SUITE_H_

#include "tests/conformance/groups_suite.h"
#include "tests/conformance/reductions_suite.h"
#include "tests/conformance/transfers_suite.h"

#endif  // CKPT_TESTS_CONFORMANCE_COLLECTIVES_SUITE_H_
