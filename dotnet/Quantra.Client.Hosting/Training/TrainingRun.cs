using Quantra.Client.Hosting.Processes;

namespace Quantra.Client.Hosting.Training;

/// <summary>One training: what its lines tell, and what that makes of its end.</summary>
/// <param name="progress">Told while it goes on.</param>
/// <param name="token">Of the caller.</param>
internal sealed class TrainingRun(IProgress<TrainingProgress>? progress, CancellationToken token)
{
    private TrainingResult? _result;
    private QuantraError? _error;
    private string? _stopped;
    private string? _checkpoint;

    /// <summary>Refuses to begin what is cancelled already.</summary>
    /// <exception cref="TrainingCanceledException">It is.</exception>
    public void ThrowIfCancelled(CancellationToken cancelled)
    {
        if (cancelled.IsCancellationRequested)
            throw new TrainingCanceledException("the training was cancelled before it began", null, token);
    }

    /// <summary>Takes a line of standard output.</summary>
    public void Take(string text)
    {
        if (JsonLine.Of(text) is not { } line)
            return;
        _result ??= TrainingLine.Result(line);
        _error ??= TrainingLine.Error(line);
        _stopped ??= TrainingLine.Stopped(line);
        if (TrainingLine.Progress(line) is not { } told)
            return;
        if (told is TrainingCheckpoint { Problem: null, Folder: var folder })
            _checkpoint = folder;
        progress?.Report(told);
    }

    /// <summary>What came of it.</summary>
    /// <param name="environment">Whose Python ran it.</param>
    /// <param name="exitCode">With which it ended.</param>
    /// <param name="errors">The last lines of standard error.</param>
    /// <param name="isCancelled">Whether it was cancelled.</param>
    /// <exception cref="TrainingCanceledException">It was, or somebody else sent it a signal.</exception>
    /// <exception cref="QuantraException">It failed.</exception>
    public TrainingResult End(PythonEnvironment environment, int exitCode, IReadOnlyList<string> errors, bool isCancelled)
    {
        if (exitCode == 0 && _result is not null)
            return _result;
        if (_stopped is not null || isCancelled)
            throw new TrainingCanceledException($"{_stopped ?? "the training was ended"}; {Left()}", _checkpoint, token);
        throw ProcessError.ToException(_error
            ?? ProcessError.OfEnvironment(environment, errors, exitCode)
            ?? ProcessError.Of(
                QuantraStatus.Internal,
                QuantraReason.Internal,
                $"the training ended without a word, {ProcessError.Ending(exitCode, errors)}",
                errors,
                exitCode));
    }

    private string Left() => _checkpoint is null
        ? "it wrote no checkpoint"
        : $"with Resume it goes on from {_checkpoint}";
}
