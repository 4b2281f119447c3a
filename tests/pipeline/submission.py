"""spark-submit, with what `understudy pipeline bundle` made and nothing else of ours."""

from pathlib import Path

from tests.pipeline.standalone import environment

# Small data: a JVM that is to start soon.
QUICK_DRIVER = ("--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def run_command(*arguments: str) -> None:
    """`understudy pipeline`, in the session that there is."""
    from click.testing import CliRunner

    from replication.cli import group

    done = CliRunner().invoke(group, ["pipeline", *arguments])
    assert done.exit_code == 0, done.output


def submission(bundle: Path, master: str, *options: str) -> list[str]:
    """The command that the job and its arguments are put behind; makes the bundle.

    A job's answer goes to a file: spark-submit lets what the driver says on either stream out
    on one.
    """
    run_command("bundle", str(bundle))
    submit = Path(environment(bundle)["SPARK_HOME"]) / "bin" / "spark-submit"
    command = [str(submit), "--master", master, *QUICK_DRIVER, *options]
    command += ["--py-files", str(bundle / "understudy.zip")]
    return [*command, str(bundle / "understudy_submit.py")]
