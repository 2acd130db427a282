// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <string>

#include "sim/base/yaml.hpp"

namespace orrery {

/// While one lives, this thread reads each file of YAML or JSON once and copies what it read: for many scenarios of the
/// same files, of which none changes meanwhile. One at a time.
class KeptFiles {
 public:
  KeptFiles();
  ~KeptFiles();
  KeptFiles(const KeptFiles&) = delete;
  KeptFiles& operator=(const KeptFiles&) = delete;

  /// What `make` gives, made once for each `name` while files are kept, and every time otherwise.
  static Node once(const std::string& name, const std::function<Node()>& make);

 private:
  std::map<std::string, Node> known_;
};

}  // namespace orrery
