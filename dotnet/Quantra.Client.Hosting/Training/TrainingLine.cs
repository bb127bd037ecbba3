using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Training;

/// <summary>What the lines of a training mean, as docs/training-loop.md has them.</summary>
internal static class TrainingLine
{
    /// <summary>The progress that a line tells; null if it tells none, or one that is newer than this class.</summary>
    public static TrainingProgress? Progress(JsonLine line) => line.Text("kind") switch
    {
        "stage" => line.Text("stage") is { } text ? new TrainingStage(text) : null,
        "warning" => line.Text("warning") is { } text ? new TrainingNotice(text, IsDoubt: true) : null,
        "notice" => line.Text("message") is { } text ? new TrainingNotice(text, IsDoubt: false) : null,
        "checkpoint" => line.Text("folder") is { } folder ? new TrainingCheckpoint(folder, line.Text("problem")) : null,
        "window" => Step(line),
        "epoch" => Epoch(line),
        _ => null,
    };

    /// <summary>The model that a line tells of; null if it tells of none.</summary>
    public static TrainingResult? Result(JsonLine line) => (line.Text("kind"), line.Text("artifact")) switch
    {
        ("trained", { } artifact) => new(artifact, line.Inner("card")?.ToString(), line.Inner("card")?.Inner("skill")?.Text("sentence"), WasThere: false),
        ("finished", { } artifact) => new(artifact, null, null, WasThere: true),
        _ => null,
    };

    /// <summary>How a signal ended the training; null if the line does not tell that.</summary>
    public static string? Stopped(JsonLine line) => line.Text("kind") == "stopped" ? line.Text("message") : null;

    /// <summary>The error that a line tells; null if it tells none.</summary>
    public static QuantraError? Error(JsonLine line)
    {
        if (line.Inner("error") is not { } error || error.Text("reason") is not { } reason || error.Text("message") is not { } message)
            return null;
        var name = (error.Text("status") ?? "").Replace("_", "", StringComparison.Ordinal);
        var status = Enum.TryParse<QuantraStatus>(name, ignoreCase: true, out var found) ? found : QuantraStatus.Unknown;
        return new QuantraError(status, reason, message, error.Inner("metadata")?.TextsByName() ?? new Dictionary<string, string>());
    }

    private static TrainingStep? Step(JsonLine line) =>
        line.Whole("epoch") is { } epoch && line.Whole("epochs") is { } epochs && line.Whole("window") is { } window
            ? new TrainingStep(
                epoch,
                epochs,
                window,
                line.Whole("windows"),
                Number(line, "loss"),
                Number(line, "grad_norm"),
                Number(line, "learning_rate"),
                !line.IsTrue("stepped"))
            : null;

    private static TrainingEpoch? Epoch(JsonLine line)
    {
        if (line.Whole("epoch") is not { } epoch || line.Whole("epochs") is not { } epochs)
            return null;
        var phases = line.Inner("phases");
        var first = phases?.Names().FirstOrDefault() is { } name ? phases.Inner(name) : null;
        return new TrainingEpoch(epoch, epochs, Number(first, "loss"), Number(line.Inner("validation"), "mean"), Number(line, "seconds"));
    }

    /// <summary>A number; NaN where it was not finite, which JSON cannot say, or is missing.</summary>
    private static double Number(JsonLine? line, string name) => line?.Number(name) ?? double.NaN;
}
