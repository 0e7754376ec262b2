// Runs a fuzz target over files and folders given on the command line: the corpus as a test, in
// every build.

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

#include <boost/filesystem/operations.hpp>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = boost::filesystem;

bool Replay(const fs::path& path) {
  std::ifstream in(path.string(), std::ios::binary);
  if (!in) return false;
  const std::vector<char> bytes((std::istreambuf_iterator<char>(in)), {});
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  int replayed = 0;
  for (int i = 1; i < argc; ++i) {
    if (!fs::exists(argv[i])) continue;
    if (fs::is_regular_file(argv[i])) {
      replayed += Replay(argv[i]) ? 1 : 0;
      continue;
    }
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(argv[i])) {
      if (fs::is_regular_file(entry.path())) replayed += Replay(entry.path()) ? 1 : 0;
    }
  }
  std::printf("replayed %d inputs\n", replayed);
  return replayed == 0 ? 1 : 0;  // a corpus that is not there proves nothing
}
