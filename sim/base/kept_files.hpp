// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "sim/base/yaml.hpp"

namespace orrery {

/// What was read of files of YAML and JSON, to be copied: for many scenarios of the same files, of which none changes
/// meanwhile. Threads may use one together.
class KeptFiles {
 public:
  /// While one lives, this thread reads each file once. Within another one it is the inner one that counts.
  class InUse {
   public:
    explicit InUse(KeptFiles& files);
    ~InUse();
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

   private:
    KeptFiles* outer_;
  };

  /// What `make` gives, made once for each `name` while files are in use, and every time otherwise.
  static Node once(const std::string& name, const std::function<Node()>& make);

 private:
  const Node* find(const std::string& name);

  std::mutex mutex_;
  std::map<std::string, Node> known_;
};

}  // namespace orrery
