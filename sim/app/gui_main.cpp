// SPDX-License-Identifier: Apache-2.0
// orrery-gui [FILE [OTHER]] [--exec COMMANDS]: the timeline explorer.
#include <QApplication>
#include <QSettings>
#include <QStyleFactory>
#include <QTimer>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string_view>

#include "gui/window/main_window.hpp"
#include "sim/app/commands.hpp"
#include "sim/app/resimulator.hpp"
#include "sim/base/error.hpp"

namespace {

constexpr const char* kUsage =
    "usage: orrery-gui [FILE [OTHER]] [--exec 'COMMAND; COMMAND …']\n\n"
    "  FILE, OTHER        timelines of Orrery, or of PyTorch, Chrome, Perfetto, Nsight Systems; OTHER is compared with "
    "FILE\n"
    "  --exec COMMANDS    what to do after opening, such as 'colour_by error; picture out.png; quit'\n"
    "  --list-commands    every command of --exec with its keys\n";

struct Arguments {
  QStringList files;
  QString commands;
  bool lists = false;
  QString problem;
};

Arguments read(const QStringList& words) {
  Arguments a;
  for (qsizetype i = 1; i < words.size(); ++i) {
    if (words[i] == "--exec" && i + 1 < words.size())
      a.commands = words[++i];
    else if (words[i] == "--list-commands")
      a.lists = true;
    else if (words[i] == "--exec")
      a.problem = "option --exec needs COMMANDS";
    else if (words[i].startsWith("--"))
      a.problem = QString{"unknown option '%1'"}.arg(words[i]);
    else if (a.files.size() == 2)
      a.problem = QString{"unexpected argument '%1'"}.arg(words[i]);
    else
      a.files << words[i];
  }
  return a;
}

/// Whether one of these words is among the arguments, before Qt has looked at them.
bool has(int argc, char** argv, std::initializer_list<std::string_view> words) {
  return std::any_of(argv + 1, argv + argc, [&](const char* argument) {
    return std::find(words.begin(), words.end(), std::string_view{argument}) != words.end();
  });
}

/// What needs no window, or says that there can be none; nothing where one is to be opened.
std::optional<int> before_window(int argc, char** argv) {
  using namespace orrery;
  if (has(argc, argv, {"--help", "-h"})) {
    std::fputs(kUsage, stdout);
    return exit_code::kOk;
  }
  if (has(argc, argv, {"--list-commands"})) qputenv("QT_QPA_PLATFORM", "offscreen");
  if (has(argc, argv, {"-platform", "--platform"})) return {};
  try {
    need_display();
  } catch (const MissingError& e) {
    std::fprintf(stderr, "orrery-gui: %s\n", e.what());
    return exit_code::kMissing;
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  using namespace orrery;
  if (const std::optional<int> code = before_window(argc, argv)) return *code;
  QApplication application{argc, argv};
  QApplication::setApplicationName("orrery-gui");
  QApplication::setOrganizationName("orrery");
  QApplication::setStyle(QStyleFactory::create("Fusion"));
  const Arguments arguments = read(QApplication::arguments());
  if (!arguments.problem.isEmpty()) {
    std::fprintf(stderr, "orrery-gui: %s\n%s", qPrintable(arguments.problem), kUsage);
    return exit_code::kWrongInput;
  }
  const Environment environment = process_environment();
  const Wiring wiring{environment};
  const auto resimulator = make_resimulator(wiring, environment);
  try {
    gui::MainWindow window{resimulator.get()};
    if (arguments.lists) {
      for (const gui::Action& a : window.actions().all())
        std::printf("%-24s %-20s  %s\n", qPrintable(a.id), qPrintable(a.shortcut), qPrintable(a.title));
      return exit_code::kOk;
    }
    const bool is_first_run = !QSettings{}.contains("geometry");
    const bool is_scripted = !arguments.commands.isEmpty();
    if (!is_scripted) {
      window.restoreGeometry(QSettings{}.value("geometry").toByteArray());
      window.restoreState(QSettings{}.value("docks").toByteArray());
    }
    window.show();
    if (!arguments.files.isEmpty()) window.open(arguments.files[0]);
    if (arguments.files.size() > 1) window.compare(arguments.files[1]);
    if (is_first_run && arguments.files.isEmpty() && !is_scripted) {
      window.open_example();
      window.execute("tour");
    }
    int code = exit_code::kOk;
    if (is_scripted)
      QTimer::singleShot(0, &window, [&] {
        const QString problem = window.run_script(arguments.commands);
        std::fputs(qPrintable(window.log_text() + "\n"), stderr);
        if (problem.isEmpty()) return;
        code = exit_code::kWrongInput;
        QApplication::quit();
      });
    QApplication::exec();
    return code;
  } catch (const MissingError& e) {
    std::fprintf(stderr, "orrery-gui: %s\n", e.what());
    return exit_code::kMissing;
  }
}
