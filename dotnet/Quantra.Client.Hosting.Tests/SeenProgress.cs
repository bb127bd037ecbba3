namespace Quantra.Client.Hosting.Tests;

/// <summary>Keeps what a training tells.</summary>
internal sealed class SeenProgress(Action<TrainingProgress>? also = null) : IProgress<TrainingProgress>
{
    public List<TrainingProgress> All { get; } = [];

    public void Report(TrainingProgress value)
    {
        All.Add(value);
        also?.Invoke(value);
    }
}
