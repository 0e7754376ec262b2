#include "trainer/comm/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include "trainer/comm/exchange_values.h"

namespace ckpt::trainer {

MachineName ThisMachine() {
  MachineName name{};
  (void)gethostname(name.data(), name.size() / 2);
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);  // empty where the system has none
  boot.resize(std::min(boot.size(), name.size() / 2 - 1));
  std::ranges::copy(boot, name.begin() + name.size() / 2);
  return name;
}

int PlaceOnMachine(std::span<const MachineName> names, int rank) {
  const auto own = static_cast<std::size_t>(rank);
  return static_cast<int>(std::ranges::count(names.first(own), names[own]));
}

Result<int> RankOnMachine(HostGroup& world) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<MachineName> names, ExchangeValues(world, ThisMachine()));
  return PlaceOnMachine(names, world.rank());
}

Result<std::unique_ptr<HostGroup>> SplitByMachine(HostGroup& world) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<MachineName> names, ExchangeValues(world, ThisMachine()));
  const auto first = std::ranges::find(names, names[static_cast<std::size_t>(world.rank())]);
  return world.Split(static_cast<int>(first - names.begin()), world.rank());
}

}  // namespace ckpt::trainer
