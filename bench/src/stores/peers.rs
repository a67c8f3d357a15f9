//! The programs in Ruby and in Python, which take turns in separate processes.

use std::path::PathBuf;
use std::process::Command;

use super::{Places, Workload};
use crate::record::Record;
use crate::{Error, Result, peer};

/// The language of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `peers/ruby`.
    Ruby,
    /// `peers/python`.
    Python,
}

/// The dependencies of the programs.
#[derive(Clone, Debug)]
pub struct Peers {
    /// The Ruby with the packages.
    pub ruby: PathBuf,
    /// The folder of quipu's gem, with its extension built; `None` omits the gem.
    pub gem: Option<PathBuf>,
    /// A checkout of client_ruby; `None` omits client_ruby.
    pub client_ruby: Option<PathBuf>,
    /// The Python with prometheus_client.
    pub python: PathBuf,
    /// Whether quipu's wheel is installed in that Python.
    pub wheel: bool,
}

impl Peers {
    /// Returns the contenders of a workload that can be measured here.
    pub fn of(&self, workload: &Workload) -> Vec<(Language, &'static str)> {
        let can = |contender: &str| {
            let of_client_ruby =
                ["synchronized", "direct-file-store", "no-store", "quipu-client-ruby"];
            !(of_client_ruby.contains(&contender) && self.client_ruby.is_none())
        };
        let ruby = workload.ruby.iter().filter(|contender| {
            can(contender) && (self.gem.is_some() || !contender.starts_with("quipu"))
        });
        let python = workload
            .python
            .iter()
            .filter(|contender| self.wheel || !contender.starts_with("quipu"));
        let ruby = ruby.map(|contender| (Language::Ruby, *contender));
        ruby.chain(python.map(|contender| (Language::Python, *contender))).collect()
    }

    /// One turn of a contender.
    pub fn turn(
        &self,
        (language, contender): (Language, &str),
        workload: &Workload,
        places: &Places,
        quick: bool,
    ) -> Result<Vec<Record>> {
        let mut command = match language {
            Language::Ruby => {
                let mut command = Command::new(&self.ruby);
                command.arg(script("ruby/stores.rb")?);
                command.arg("--redis").arg(&places.redis);
                command.args(["--redis-port", &places.redis_port.to_string()]);
                if let Some(gem) = &self.gem {
                    command.arg("--gem").arg(gem);
                }
                if let Some(client_ruby) = &self.client_ruby {
                    command.arg("--client-ruby").arg(client_ruby);
                }
                command
            }
            Language::Python => {
                let mut command = Command::new(&self.python);
                command.env("PYTHONDONTWRITEBYTECODE", "1").arg(script("python/stores.py")?);
                command
            }
        };
        command.args(["--workload", workload.name, "--contender", contender]);
        command.arg("--tmpfs").arg(&places.tmpfs).arg("--disk").arg(&places.disk);
        if quick {
            command.arg("--quick");
        }
        peer::turn(&mut command)
    }
}

fn script(name: &str) -> Result<PathBuf> {
    let path = crate::root().join("bench/peers").join(name);
    match path.is_file() {
        true => Ok(path),
        false => Err(Error::report(format!("{} does not exist", path.display()))),
    }
}
