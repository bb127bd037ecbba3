using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>Nobody watches calls inside this process.</summary>
internal sealed class UnwatchedStreams : IStreamWatch, IWatchedCall
{
    /// <inheritdoc/>
    public IWatchedCall BeginStream() => this;

    /// <inheritdoc/>
    public IWatchedCall BeginRequest(string model) => this;

    /// <inheritdoc/>
    public void Answered(string model, TimeSpan took, string? reason)
    {
    }

    /// <inheritdoc/>
    public void GoesOn(string reason)
    {
    }

    /// <inheritdoc/>
    public void Reopened(string session, string model, string reason)
    {
    }

    /// <inheritdoc/>
    public void TryAgain()
    {
    }

    /// <inheritdoc/>
    public void Succeed()
    {
    }

    /// <inheritdoc/>
    public void Fail(string reason)
    {
    }
}
