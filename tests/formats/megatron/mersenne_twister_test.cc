#include "formats/megatron/internal/mersenne_twister.h"

#include <random>
#include <sstream>

#include <gmock/gmock.h>

namespace ckpt::megatron {
namespace {

// An engine of the standard library in this state, all words used up.
std::mt19937 EngineIn(const TwisterWords& words) {
  std::stringstream text;
  for (const std::uint32_t word : words) text << word << ' ';
  text << kTwisterWords;
  std::mt19937 engine;
  text >> engine;
  return engine;
}

TEST(Twister, SeedsAsTheStandardLibrary) {
  for (const std::uint32_t seed : {0U, 1U, 1234U, 0xffffffffU}) {
    EXPECT_EQ(EngineIn(SeedTwister(seed)), std::mt19937(seed)) << seed;
  }
}

TEST(Twister, DrawsWhatItsAuthorsPublished) {
  const std::uint32_t key[] = {0x123, 0x234, 0x345, 0x456};
  std::mt19937 engine = EngineIn(SeedTwister(key));
  for (const std::uint32_t expected :
       {1067595299U, 955945823U, 477289528U, 4107218783U, 4228976476U}) {
    EXPECT_EQ(engine(), expected);
  }
}

}  // namespace
}  // namespace ckpt::megatron
