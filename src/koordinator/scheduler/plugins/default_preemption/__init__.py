"""DefaultPreemption: evicts lower-priority pods so that a pod of higher priority fits."""
