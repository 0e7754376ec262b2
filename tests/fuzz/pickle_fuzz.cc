// Any bytes as a pickle: read, then rendered, then written into another one, which is read again.

#include <cstddef>
#include <cstdint>

#include "core/base/check.h"
#include "formats/pickle/copy_value.h"
#include "formats/pickle/object_json.h"
#include "formats/pickle/reader.h"
#include "formats/pickle/writer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::pickle;  // NOLINT(google-build-using-namespace): a target is one function
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto parsed = ParsePickle(bytes, "fuzz", {.max_nodes = 1 << 20, .max_stack = 1 << 20});
  if (parsed.ok()) {
    const auto rendered =
        RenderObject(parsed->graph, parsed->root, "fuzz", "key", {.max_bytes = 1 << 20});
    (void)rendered.ok();
    PickleWriter copy(Dialect::kWeightsOnly);
    const auto refer = [](NodeId /*persistent*/, PickleWriter& out) {
      out.None();
      return ckpt::OkStatus();
    };
    if (CopyValue(parsed->graph, parsed->root, refer, copy).ok()) {
      CKPT_CHECK(ParsePickle(copy.Take(), "copy").ok());
    }
  }
  return 0;
}
