namespace Quantra.Client.Wire;

/// <summary>A call, or a request of a stream, that somebody may watch.</summary>
internal interface IWatchedCall
{
    /// <summary>It is tried once more.</summary>
    void TryAgain();

    /// <summary>It was answered.</summary>
    void Succeed();

    /// <summary>It failed.</summary>
    void Fail(string reason);
}
