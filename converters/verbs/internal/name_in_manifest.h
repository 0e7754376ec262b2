// Names of a target's files as its manifest counts them.
#ifndef CKPT_CONVERTERS_VERBS_INTERNAL_NAME_IN_MANIFEST_H_
#define CKPT_CONVERTERS_VERBS_INTERNAL_NAME_IN_MANIFEST_H_

#include <string>

namespace ckpt {

// Relative to `directory`, where the checkpoint itself is in the target; empty: the target.
inline std::string NameInManifest(const std::string& name, const std::string& directory) {
  if (directory.empty()) return name;
  return name.starts_with(directory + "/") ? name.substr(directory.size() + 1) : "../" + name;
}

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_VERBS_INTERNAL_NAME_IN_MANIFEST_H_
